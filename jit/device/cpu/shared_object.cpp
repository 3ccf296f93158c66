// See shared_object.hpp.
#include "jit/device/cpu/shared_object.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/environment.hpp"
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

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

void explain(std::string& reason, const std::string& what) {
  if (!reason.empty()) reason += "; ";
  reason += what;
}

std::string last_error(const char* call) {
  return fmt::format("{}: {}", call, std::strerror(errno));
}

void* open_library(const std::string& path, std::string& reason) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    explain(reason, text != nullptr ? text : "dlopen failed");
  }
  return handle;
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

int create_memory_file(const std::string& name) {
  const std::string clipped = name.substr(0, 200);
#ifdef MFD_EXEC
  // Some systems make memory files without this flag not executable; older kernels do not know it.
  if (int fd = ::memfd_create(clipped.c_str(), MFD_CLOEXEC | MFD_EXEC); fd >= 0) return fd;
#endif
  return ::memfd_create(clipped.c_str(), MFD_CLOEXEC);
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

void* load_from_directory(std::span<const std::byte> image, const std::string& parent,
                          std::string& reason) {
  std::string directory = parent + "/kiln-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) {  // mode 0700
    explain(reason, parent + ": " + last_error("mkdtemp"));
    return nullptr;
  }
  const std::string path = directory + "/kernel.so";
  void* handle = nullptr;
  if (std::FILE* file = std::fopen(path.c_str(), "wxe"); file != nullptr) {
    const bool written = write_all(::fileno(file), image);
    if (!written) explain(reason, path + ": " + last_error("write"));
    std::fclose(file);
    if (written) handle = open_library(path, reason);
    ::unlink(path.c_str());
  } else {
    explain(reason, path + ": " + last_error("open"));
  }
  ::rmdir(directory.c_str());
  return handle;
}

}  // namespace

std::string why_not_loadable(std::span<const std::byte> image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof header) return fmt::format("{} bytes are no ELF image", image.size());
  std::memcpy(&header, image.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "it does not begin like an ELF image";
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "it is not a 64-bit ELF image";
  if (header.e_type != ET_DYN) return "it is not a shared object";
  if (header.e_machine != kMachine) {
    return fmt::format("it is for another machine (ELF machine {}, this is {})", header.e_machine,
                       kMachine);
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return "its program headers have a wrong size";
  const std::uint64_t table = std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (header.e_phoff > image.size() || table > image.size() - header.e_phoff) {
    return "it is shorter than its program headers";
  }
  bool loads = false;
  bool links = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, image.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
    if (segment.p_offset > image.size() || segment.p_filesz > image.size() - segment.p_offset) {
      return "it is shorter than its segments";
    }
    if (segment.p_type == PT_DYNAMIC) {
      links = true;
      continue;
    }
    loads = true;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (segment.p_filesz > segment.p_memsz || segment.p_align % page != 0 ||
        (segment.p_vaddr - segment.p_offset) % page != 0) {
      return "its segments cannot be mapped";
    }
  }
  if (!loads) return "it has no segment to load";
  if (!links) return "it has no dynamic section";
  return {};
}

void* load_from_memory(std::span<const std::byte> image, const std::string& name,
                       std::string& reason) {
  Descriptor file(create_memory_file(name));
  if (file.get() < 0) {
    explain(reason, last_error("memfd_create"));
    return nullptr;
  }
  if (!write_all(file.get(), image)) {
    explain(reason, last_error("write to a memory file"));
    return nullptr;
  }
  return open_library(unique_path(file.get()), reason);
}

void* load_from_file(std::span<const std::byte> image, std::string& reason) {
  for (const std::string& parent : temporary_directories()) {
    if (void* handle = load_from_directory(image, parent, reason)) return handle;
  }
  return nullptr;
}

SharedObject::SharedObject(std::span<const std::byte> image, const std::string& name) {
  const auto message = [&](const std::string& reason) {
    return fmt::format("load of {} on cpu: the shared object of {} bytes cannot be loaded: {}",
                       name, image.size(), reason);
  };
  std::string reason = why_not_loadable(image);
  if (!reason.empty()) throw InvalidImage(message(reason));
  // What the loader refuses from here on it refuses for want of memory, mappings, descriptors or
  // libraries: of an image that is whole that says nothing. Its texts are not looked at, since
  // there are as many of them as languages and C libraries.
  handle_ = load_from_memory(image, name, reason);
  if (handle_ == nullptr) handle_ = load_from_file(image, reason);
  if (handle_ == nullptr) throw Error(Code::device, message(reason));
}

SharedObject::~SharedObject() {
  if (handle_ != nullptr) dlclose(handle_);
}

SharedObject::SharedObject(SharedObject&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

void* SharedObject::symbol(const std::string& name) const {
  void* address = dlsym(handle_, name.c_str());
  if (address == nullptr) {
    throw InvalidImage(
        fmt::format("load of {} on cpu: the shared object has no such function", name));
  }
  return address;
}

}  // namespace kiln::jit::cpu
