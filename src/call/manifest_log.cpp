#include "call/manifest_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <unordered_set>

#include "base/environment.hpp"
#include "base/io.hpp"
#include "files/manifest.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// One process' view of the file: what it has read so far, and which lines it knows.
class ManifestLog {
 public:
  explicit ManifestLog(std::string path) : path_(std::move(path)) {}

  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (known_.contains(line)) return;
    if (!open_file() || !add_locked(line)) {
      const int error = errno;
      log_once(
          LogLevel::warning, "record " + path_,
          fmt::format("KILN_RECORD={}: cannot be written: {}", path_, base::describe_errno(error)));
      return;
    }
    known_.insert(line);
  }

 private:
  // A forked child opens the file again, since a lock on the parent's descriptor would be the
  // parent's, and everybody does when it was deleted.
  bool open_file() {
    struct stat status {};
    const bool there = file_ && io_.stat(file_.get(), status) == 0 && status.st_nlink > 0;
    if (there && owner_ == getpid()) return true;
    if (!there) forget();
    owner_ = getpid();
    file_ = base::open_file(io_, path_, O_RDWR | O_APPEND | O_CREAT, 0666);
    return static_cast<bool>(file_);
  }

  void forget() {
    read_to_ = 0;
    ends_line_ = true;
    known_.clear();
  }

  bool add_locked(const std::string& line) {
    if (!base::lock_file(io_, file_.get(), LOCK_EX)) return false;
    const bool written = read_others() && (known_.contains(line) || append(line));
    const int error = errno;
    base::lock_file(io_, file_.get(), LOCK_UN);
    errno = error;
    return written;
  }

  // What others have added since.
  bool read_others() {
    struct stat status {};
    if (io_.stat(file_.get(), status) != 0) return false;
    if (status.st_size < read_to_) {  // somebody has emptied it
      forget();
    }
    const auto more = static_cast<std::uint64_t>(status.st_size - read_to_);
    std::string text;
    if (!base::read_bytes(io_, file_.get(), static_cast<std::uint64_t>(read_to_), more, text) ||
        text.size() < more) {
      return false;
    }
    read_to_ = status.st_size;
    ends_line_ = text.empty() ? ends_line_ : text.back() == '\n';
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      known_.insert(text.substr(at, end - at));
      at = end + 1;
    }
    return true;
  }

  // After whatever a writer that was killed, or had no room, has left. What is written here of a
  // line that fails is read again as another's.
  bool append(const std::string& line) {
    const std::string bytes = fmt::format("{}{}\n", ends_line_ ? "" : "\n", line);
    if (!base::write_bytes(io_, file_.get(), bytes)) return false;
    read_to_ += static_cast<off_t>(bytes.size());
    ends_line_ = true;
    return true;
  }

  base::Io& io_ = base::system_io();
  const std::string path_;
  std::mutex mutex_;
  std::unordered_set<std::string> known_;
  base::UniqueFd file_;
  pid_t owner_ = -1;
  off_t read_to_ = 0;
  bool ends_line_ = true;
};

// Never destroyed: threads of the caller may still call functions while the process ends.
ManifestLog* manifest_log() {
  static ManifestLog* const instance = [] {
    std::string path = base::environment("KILN_RECORD");
    return path.empty() ? nullptr : new ManifestLog(std::move(path));
  }();
  return instance;
}

std::uint32_t misalignment_of(const View& view) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(view.data()) % 16);
}

Dims strides_unless_contiguous(const View& view) {
  return view.strides() == contiguous_strides(view.shape()) ? Dims() : view.strides();
}

// Where an operand begins, if others begin in the same memory.
fusion::MemoryPlace shared_place(std::span<const fusion::MemoryPlace> places, std::size_t operand) {
  if (operand >= places.size()) return {};
  const fusion::MemoryPlace place = places[operand];
  const auto sharers = std::ranges::count(places, place.memory, &fusion::MemoryPlace::memory);
  return sharers > 1 ? place : fusion::MemoryPlace();
}

void log_call(files::ManifestKind kind, const CallNames& names, std::string_view text,
              const Options& options, const Specification& specification) {
  files::ManifestLine line;
  line.kind = kind;
  line.name = names.function;
  line.text = text;
  line.options = options;
  line.specification = specification;
  // The order of the arguments is part of the kernel.
  std::ranges::stable_sort(line.specification.arguments, {}, [&](const ArgumentSpec& argument) {
    return std::ranges::find(names.arguments, argument.name) - names.arguments.begin();
  });
  manifest_log()->add(files::manifest_line(line));
}

}  // namespace

bool logs_manifest() { return manifest_log() != nullptr; }

void log_function(const CallNames& names, std::string_view expression, const Options& options,
                  const Specification& specification) {
  log_call(files::ManifestKind::function, names, expression, options, specification);
}

void log_program(const Definition& definition, const Specification& specification) {
  log_call(files::ManifestKind::program, names_of(definition), definition.expression,
           definition.options, specification);
}

void log_kernel(std::string_view name, std::string_view source,
                std::span<const KernelParameter> parameters, const Options& options) {
  files::ManifestLine line;
  line.kind = files::ManifestKind::kernel;
  line.name = name;
  line.text = source;
  line.parameters.assign(parameters.begin(), parameters.end());
  line.options = options;
  manifest_log()->add(files::manifest_line(line));
}

Specification specification_of(const CallNames& names, const Call& call,
                               std::span<const fusion::MemoryPlace> places) {
  Specification specification;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& input = call.inputs[i];
    ArgumentSpec argument;
    argument.name = names.arguments[i];
    if (input.is_scalar()) {
      argument.dtype = input.scalar().dtype();
      argument.scalar = true;
      argument.weak = input.scalar().weak();
    } else {
      argument.dtype = input.view().dtype();
      argument.shape = input.view().shape();
      argument.strides = strides_unless_contiguous(input.view());
      argument.misalignment = misalignment_of(input.view());
      const fusion::MemoryPlace place = shared_place(places, i);
      argument.memory = place.memory;
      argument.element = place.element;
    }
    specification.arguments.push_back(std::move(argument));
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const View& output = call.outputs[i];
    const fusion::MemoryPlace place = shared_place(places, call.inputs.size() + i);
    specification.outputs.push_back(output.dtype());
    specification.layouts.push_back({output.shape(), strides_unless_contiguous(output),
                                     misalignment_of(output), place.memory, place.element});
  }
  return specification;
}

}  // namespace kiln
