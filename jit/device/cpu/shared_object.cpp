// See shared_object.hpp.
#include "jit/device/cpu/shared_object.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/elf.hpp"
#include "base/environment.hpp"
#include "base/io.hpp"
#include "base/temporary.hpp"
#include "jit/device/backend.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::cpu {
namespace {

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr std::uint16_t kMachine = EM_PPC64;
#elif defined(__riscv)
constexpr std::uint16_t kMachine = EM_RISCV;
#else
#error "kiln's CPU device needs a 64-bit ELF machine: add its EM_ constant here"
#endif

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void explain(std::string& reason, const std::string& what) {
  if (!reason.empty()) reason += "; ";
  reason += what;
}

std::string last_error(const char* call) {
  return fmt::format("{}: {}", call, base::describe_errno(errno));
}

base::DynamicLibrary open_library(const std::string& path, std::string& reason) {
  base::DynamicLibrary library(path);
  if (!library) explain(reason, library.error());
  return library;
}

/// A path of the descriptor that no other library has had. The loader takes two equal paths for the
/// same library, and a descriptor's number is used again as soon as it is closed, so the path
/// counts: each bit of a counter is a "/." or a "/" between the directory and the number.
std::string unique_path(int fd) {
  static std::atomic<std::uint64_t> counter{1};
  std::string path = "/proc/self/fd";
  for (std::uint64_t n = counter.fetch_add(1); n != 0; n >>= 1) path += (n & 1) != 0 ? "/." : "/";
  return path + "/" + std::to_string(fd);
}

base::UniqueFd create_memory_file(const std::string& name) {
  const std::string clipped = name.substr(0, 200);
#ifdef MFD_EXEC
  // Some systems make memory files without this flag not executable; older kernels do not know it.
  if (const int fd = ::memfd_create(clipped.c_str(), MFD_CLOEXEC | MFD_EXEC); fd >= 0) {
    return base::UniqueFd(fd);
  }
#endif
  return base::UniqueFd(::memfd_create(clipped.c_str(), MFD_CLOEXEC));
}

/// The environment's directories for such files, then the usual ones: /tmp may be mounted noexec.
std::vector<std::string> temporary_directories() {
  std::vector<std::string> directories;
  for (const char* variable : {"TMPDIR", "XDG_RUNTIME_DIR"}) {
    if (std::string value = base::environment(variable); value.starts_with('/')) {
      directories.push_back(std::move(value));
    }
  }
  directories.insert(directories.end(), {"/tmp", "/var/tmp"});
  return directories;
}

base::DynamicLibrary load_from_directory(std::span<const std::byte> image,
                                         const std::string& parent, std::string& reason) {
  try {
    const base::TemporaryDirectory directory(parent, "kiln");
    return open_library(directory.write("kernel.so", text_of(image)), reason);
  } catch (const Error& error) {
    explain(reason, error.what());
    return {};
  }
}

}  // namespace

std::string why_not_loadable(std::span<const std::byte> image) {
  const std::string_view bytes = text_of(image);
  if (std::string error = base::Elf::header_error(bytes); !error.empty()) return "it " + error;
  const auto elf = base::Elf::parse(bytes);
  if (!elf) return "its symbol tables or notes lie over one another";
  if (elf->type() != ET_DYN) return "it is not a shared object";
  if (elf->machine() != kMachine) {
    return fmt::format("it is for another machine (ELF machine {}, this is {})", elf->machine(),
                       kMachine);
  }
  if (elf->segments().size() < elf->segment_count()) {
    return "it is shorter than its program headers";
  }
  bool loads = false;
  bool links = false;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const base::ElfSegment& segment : elf->segments()) {
    if (segment.type != PT_LOAD && segment.type != PT_DYNAMIC) continue;
    if (segment.offset > image.size() || segment.file_bytes > image.size() - segment.offset) {
      return "it is shorter than its segments";
    }
    if (segment.type == PT_DYNAMIC) {
      links = true;
      continue;
    }
    loads = true;
    if (segment.file_bytes > segment.memory_bytes || segment.alignment % page != 0 ||
        (segment.address - segment.offset) % page != 0) {
      return "its segments cannot be mapped";
    }
  }
  if (!loads) return "it has no segment to load";
  if (!links) return "it has no dynamic section";
  return {};
}

base::DynamicLibrary load_from_memory(std::span<const std::byte> image, const std::string& name,
                                      std::string& reason) {
  const base::UniqueFd file = create_memory_file(name);
  if (!file) {
    explain(reason, last_error("memfd_create"));
    return {};
  }
  if (!base::write_bytes(base::system_io(), file.get(), text_of(image))) {
    explain(reason, last_error("write to a memory file"));
    return {};
  }
  return open_library(unique_path(file.get()), reason);
}

base::DynamicLibrary load_from_file(std::span<const std::byte> image, std::string& reason) {
  for (const std::string& parent : temporary_directories()) {
    if (auto library = load_from_directory(image, parent, reason)) return library;
  }
  return {};
}

SharedObject::SharedObject(std::span<const std::byte> image, const std::string& name) {
  const auto message = [&](const std::string& reason) {
    return fmt::format("load of {} on cpu: the shared object of {} bytes cannot be loaded: {}",
                       name, image.size(), reason);
  };
  std::string reason = why_not_loadable(image);
  if (!reason.empty()) throw InvalidImage(message(reason));
  // From here on the loader refuses for want of memory, mappings, descriptors or libraries, which
  // is no property of a whole image. Its messages are not looked at: they differ by language and C
  // library.
  library_ = load_from_memory(image, name, reason);
  if (!library_) library_ = load_from_file(image, reason);
  if (!library_) throw Error(Code::device, message(reason));
}

void* SharedObject::symbol(const std::string& name) const {
  void* address = library_.symbol(name.c_str());
  if (address == nullptr) {
    throw InvalidImage(
        fmt::format("load of {} on cpu: the shared object has no such function", name));
  }
  return address;
}

}  // namespace kiln::jit::cpu
