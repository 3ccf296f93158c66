// Writes the device code into a C++ source: for each kind of device the text of each header, the
// headers that it needs and the names that it declares, by which a kernel asks for it. Runs when
// kiln is built: embed OUTPUT HEADER..., the headers in the order in which they build on each
// other.
//
// What stands under #if KILN_HOST, KILN_AMD or KILN_NVIDIA is left out for the devices that it is
// not for. A header that overloads functions of other headers for types of its own may say
//   // Asked for by: c64
// and is then not needed by a text that has one of these functions, but none of these words.
#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "preamble/tables.hpp"

namespace {

using Words = std::vector<std::string>;

bool starts_word(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_word(const std::string& token) { return starts_word(token[0]); }

// Words that stand before the name of a type or function, with parentheses of their own.
bool takes_arguments(const std::string& word) {
  return word == "alignas" || word == "__attribute__" || word == "decltype";
}

// A macro that declares functions, such as KILN_LIBRARY_1(exp, exp).
bool is_macro(const std::string& word) {
  return word.starts_with("KILN_") &&
         std::ranges::none_of(word, [](unsigned char c) { return std::islower(c) != 0; });
}

constexpr int kDevices = 3;
constexpr const char* kDeviceMacros[kDevices] = {"KILN_HOST", "KILN_AMD", "KILN_NVIDIA"};

// A line for each kind of device, or none.
using Line = std::array<std::optional<std::string>, kDevices>;

struct Header {
  std::string name;
  std::vector<Line> lines;
  std::array<Words, kDevices> includes;
  std::array<std::set<std::string>, kDevices> names;
  Words asked_for_by;
};

[[noreturn]] void fail(const Header& header, const std::string& message) {
  throw std::runtime_error("preamble/" + header.name + ": " + message);
}

// The tokens of a header without its comments and preprocessor lines; macros that it defines go
// into `names`.
class Tokens {
 public:
  Tokens(std::string_view text, std::set<std::string>& names) : text_(text), names_(names) {
    while (at_ < text_.size()) step();
  }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\n') line_begins_ = true;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '#' && line_begins_) {
      directive();
    } else {
      line_begins_ = false;
      token();
    }
  }

  void token() {
    std::size_t end = at_ + 1;
    if (in_word(text_[at_])) {
      while (end < text_.size() && in_word(text_[end])) ++end;
    } else if (text_[at_] == '"' || text_[at_] == '\'') {
      while (text_[end] != text_[at_]) end += text_[end] == '\\' ? 2 : 1;
      ++end;
    }
    tokens_.emplace_back(text_.substr(at_, end - at_));
    at_ = end;
  }

  void directive() {
    std::size_t end = text_.find('\n', at_);
    while (end != text_.npos && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    std::istringstream line{std::string(text_.substr(at_ + 1, end - at_ - 1))};
    std::string kind, name;
    line >> kind >> name;
    if (kind == "define") names_.insert(name.substr(0, name.find('(')));
    at_ = std::min(end, text_.size());
  }

  std::string_view text_;
  std::set<std::string>& names_;
  std::vector<std::string> tokens_;
  std::size_t at_ = 0;
  bool line_begins_ = true;
};

// The names that a header declares in its namespaces for one kind of device.
class Names {
 public:
  Names(const Header& header, const std::string& text, std::set<std::string>& names)
      : header_(header), names_(names), tokens_(Tokens(text, names).take()) {
    while (at_ < tokens_.size()) declaration();
  }

 private:
  const std::string& token(std::size_t index) const {
    static const std::string none = ";";
    return index < tokens_.size() ? tokens_[index] : none;
  }
  // Behind the bracket that closes the one at `index`. In parentheses < and > are comparisons.
  std::size_t behind(std::size_t index, const std::string& open, const std::string& close) const {
    int depth = 0;
    for (; index < tokens_.size(); ++index) {
      if (open == "<" && tokens_[index] == "(") index = behind(index, "(", ")");
      if (tokens_[index] == open) ++depth;
      if (tokens_[index] == close && --depth == 0) return index + 1;
    }
    fail(header_, "no " + close + " for a " + open);
  }

  void skip_to(std::initializer_list<std::string_view> signs) {
    while (std::ranges::find(signs, token(at_)) == signs.end()) {
      if (at_ >= tokens_.size()) fail(header_, "a declaration has no end");
      ++at_;
    }
  }

  void declaration() {
    const std::string& first = token(at_);
    if (first == "}" || first == ";") {
      ++at_;  // the end of a namespace
    } else if (first == "namespace") {
      skip_to({"{"});
      ++at_;
    } else if (first == "template") {
      at_ = behind(at_ + 1, "<", ">");
    } else if (is_macro(first) && token(at_ + 1) == "(") {
      declare(at_ + 2);
      at_ = behind(at_ + 1, "(", ")");
    } else if (first == "using") {
      skip_to({"=", ";"});
      declare(at_ - 1);
      skip_to({";"});
    } else if (first == "struct" || first == "enum") {
      type();
    } else {
      function_or_constant();
    }
  }

  void declare(std::size_t index) {
    if (!is_word(token(index))) fail(header_, "expected a name, got '" + token(index) + "'");
    names_.insert(token(index));
  }

  void type() {
    const bool enumeration = token(at_) == "enum";
    const bool scoped = enumeration && token(at_ + 1) == "class";
    at_ += scoped ? 2 : 1;
    while (takes_arguments(token(at_)) || is_macro(token(at_)))
      at_ = token(at_ + 1) == "(" ? behind(at_ + 1, "(", ")") : at_ + 1;
    if (is_word(token(at_))) declare(at_);
    skip_to({"{", ";"});
    if (token(at_) == ";") return;
    const std::size_t end = behind(at_, "{", "}");
    for (std::size_t i = at_; enumeration && !scoped && i < end; ++i) {
      if (is_word(token(i)) && (token(i - 1) == "{" || token(i - 1) == ",")) declare(i);
    }
    at_ = end;
  }

  // Up to the end of a function's body, or of a constant's value.
  void function_or_constant() {
    const bool type = token(at_) == "typedef";
    std::size_t name = 0;
    for (; token(at_) != ";" && token(at_) != "{"; ++at_) {
      const std::string& next = token(at_ + 1);
      if (takes_arguments(token(at_))) {
        at_ = behind(at_ + 1, "(", ")") - 1;
      } else if (name == 0 && is_word(token(at_)) &&
                 (next == "(" || next == "=" || next == "[" || next == ";" ||
                  (type && next == "__attribute__"))) {
        name = at_;
        if (next == "(") at_ = behind(at_ + 1, "(", ")") - 1;
      } else if (token(at_) == "operator") {
        name = at_;  // not a name that a text could have
        skip_to({"("});
        at_ = behind(at_, "(", ")") - 1;
      }
    }
    if (name == 0) fail(header_, "cannot tell what is declared before '" + token(at_ - 1) + "'");
    declare(name);
    at_ = token(at_) == "{" ? behind(at_, "{", "}") : at_ + 1;
  }

  const Header& header_;
  std::set<std::string>& names_;
  std::vector<std::string> tokens_;
  std::size_t at_ = 0;
};

// ---- conditions ---------------------------------------------------------------------------------

enum class Truth { no, yes, unknown };

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  return parts;
}

Truth opposite(Truth truth) {
  return truth == Truth::unknown ? truth : truth == Truth::yes ? Truth::no : Truth::yes;
}

// Of a condition as the headers have them; what else there is besides the kind of device, only the
// compiler knows.
Truth truth_of(const std::string& condition, int device) {
  Truth any = Truth::no;
  for (const std::string& term : split(condition, "||")) {
    Truth all = Truth::yes;
    for (std::string factor : split(term, "&&")) {
      std::erase(factor, ' ');
      Truth truth = Truth::unknown;
      for (int i = 0; i < kDevices; ++i) {
        const Truth holds = i == device ? Truth::yes : Truth::no;
        if (factor == kDeviceMacros[i]) truth = holds;
        if (factor == std::string("!") + kDeviceMacros[i]) truth = opposite(holds);
      }
      if (truth == Truth::no) all = Truth::no;
      if (truth == Truth::unknown && all == Truth::yes) all = truth;
    }
    if (all == Truth::yes) any = all;
    if (all == Truth::unknown && any == Truth::no) any = all;
  }
  return any;
}

// The lines of a header that are for one kind of device.
class Conditions {
 public:
  explicit Conditions(int device) : device_(device) {}

  std::optional<std::string> take(const std::string& line) {
    std::istringstream words(line);
    std::string kind, condition;
    if (line.starts_with("#")) {
      words >> kind;
      std::getline(words, condition);
      condition = condition.substr(0, condition.find("//"));
    }
    if (kind == "#if" || kind == "#ifdef" || kind == "#ifndef") {
      open_.push_back({.outside = is_open(), .open = false, .decided = false, .written = false});
      return branch(line, kind == "#if" ? truth_of(condition, device_) : Truth::unknown);
    }
    if (kind == "#elif") return branch(line, truth_of(condition, device_));
    if (kind == "#else") return branch(line, Truth::yes);
    if (kind == "#endif") {
      const Condition last = open_.back();
      open_.pop_back();
      return last.written ? std::optional(line) : std::nullopt;
    }
    return is_open() ? std::optional(line) : std::nullopt;
  }

 private:
  struct Condition {
    bool outside;  // the lines around it are taken
    bool open;     // and the lines of this branch
    bool decided;  // a branch is known to be taken
    bool written;  // the compiler decides
  };

  bool is_open() const { return open_.empty() || open_.back().open; }

  std::optional<std::string> branch(const std::string& line, Truth truth) {
    Condition& now = open_.back();
    now.open = now.outside && !now.decided && truth != Truth::no;
    if (!now.open) return std::nullopt;
    now.decided = truth == Truth::yes;
    if (!now.written && now.decided) return std::nullopt;
    const bool first = !now.written;
    now.written = true;
    if (now.decided) return "#else";
    return first && line.starts_with("#elif") ? "#if" + line.substr(5) : line;
  }

  const int device_;
  std::vector<Condition> open_;
};

std::string text_for(const Header& header, int device) {
  std::string text;
  for (const Line& line : header.lines) {
    if (line[device]) text += *line[device] + '\n';
  }
  return text;
}

// What a kernel holds of a header: not the lines that are for the host's own compilers and editors.
Header read_header(const std::string& path) {
  Header header;
  header.name = path.substr(path.rfind('/') + 1);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  header.lines.emplace_back().fill("// ---- preamble/" + header.name);
  std::array<Conditions, kDevices> conditions = {Conditions(0), Conditions(1), Conditions(2)};
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kAskedForBy = "// Asked for by: ";
    if (line.starts_with(kAskedForBy)) {
      std::istringstream words(line.substr(kAskedForBy.size()));
      header.asked_for_by.assign(std::istream_iterator<std::string>(words), {});
    }
    Line& now = header.lines.emplace_back();
    for (int device = 0; device < kDevices; ++device) {
      now[device] = conditions[device].take(line);
      if (!now[device]) continue;
      if (line.starts_with("#include \"")) header.includes[device].push_back(split(line, "\"")[1]);
      const auto before = std::find_if(header.lines.rbegin() + 1, header.lines.rend(),
                                       [&](const Line& one) { return one[device].has_value(); });
      if (line.starts_with("#include") || line == "#pragma once" ||
          line.starts_with("// clang-format") ||
          (line.empty() && before != header.lines.rend() && (*before)[device]->empty()))
        now[device].reset();
    }
  }
  for (int device = 0; device < kDevices; ++device)
    Names(header, text_for(header, device), header.names[device]);
  return header;
}

// ---- tables -------------------------------------------------------------------------------------

using Set = kiln::preamble::Headers;

// Of each header that has anything for a kind of device, itself and all that it needs.
std::vector<Set> closures(const std::vector<Header>& headers, int device) {
  std::map<std::string, Set> needs;
  std::vector<Set> all;
  for (const Header& header : headers) {
    Set closure = header.names[device].empty() ? Set() : Set::only(all.size());
    for (const std::string& include : header.includes[device]) {
      if (!needs.contains(include))
        fail(header, "includes " + include + ", which is not before it");
      closure |= needs[include];
    }
    needs[header.name] = closure;
    all.push_back(closure);
  }
  return all;
}

// Which headers each name asks for: all that declare it, but for the overloads of those that say
// what they are asked for by.
std::map<std::string, Set> asked_for(const std::vector<Header>& headers,
                                     const std::vector<Set>& closures, int device) {
  std::map<std::string, int> declared;
  for (const Header& header : headers) {
    for (const std::string& name : header.names[device]) ++declared[name];
  }
  std::map<std::string, Set> asks;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    for (const std::string& name : headers[i].names[device]) {
      if (headers[i].asked_for_by.empty() || declared[name] == 1) asks[name] |= closures[i];
    }
    if (headers[i].names[device].empty()) continue;
    for (const std::string& name : headers[i].asked_for_by) asks[name] |= closures[i];
  }
  return asks;
}

// The words that headers say they are asked for by must be there.
void check(const std::vector<Header>& headers) {
  std::set<std::string> all;
  for (const Header& header : headers) {
    for (const std::set<std::string>& names : header.names) all.insert(names.begin(), names.end());
  }
  for (const Header& header : headers) {
    for (const std::string& name : header.asked_for_by) {
      if (!all.contains(name)) fail(header, "no header declares '" + name + "'");
    }
  }
}

void write_sets(std::ostream& out, const std::array<Set, kDevices>& sets) {
  out << std::hex << "{";
  for (const Set& set : sets)
    out << "Headers{{0x" << set.words[0] << "u, 0x" << set.words[1] << "u}}, ";
  out << "}" << std::dec;
}

// The texts in pieces, each for a set of devices; returns how many.
std::size_t write_pieces(std::ostream& out, const Header& header) {
  std::size_t count = 0;
  int piece_mask = 0;
  std::string piece;
  const auto append = [&](int mask, const std::string& line) {
    // A compiler may limit the length of one literal.
    if (mask != piece_mask || piece.size() > 8000) {
      if (piece_mask != 0) out << "{" << piece_mask << ", R\"kiln(" << piece << ")kiln\"sv},\n";
      count += piece_mask != 0 ? 1 : 0;
      piece.clear();
    }
    piece_mask = mask;
    piece += line;
  };
  for (const Line& line : header.lines) {
    std::map<std::string, int> masks;
    for (int device = 0; device < kDevices; ++device) {
      if (line[device] && !header.names[device].empty()) masks[*line[device]] |= 1 << device;
    }
    for (const auto& [text, mask] : masks) append(mask, text + '\n');
  }
  append(0, "");
  return count;
}

void write_slots(std::ostream& out, const std::vector<std::string>& names) {
  if (names.size() > UINT16_MAX) throw std::runtime_error("preamble: a name's number has 16 bits");
  std::vector<std::size_t> slots(std::bit_ceil(2 * names.size()), 0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::uint32_t hash = kiln::preamble::kEmptyHash;
    for (const char c : names[i]) hash = kiln::preamble::hashed(hash, c);
    std::size_t at = hash & (slots.size() - 1);
    while (slots[at] != 0) at = (at + 1) & (slots.size() - 1);
    slots[at] = i + 1;
  }
  out << "const std::uint16_t kSlots[] = {\n";
  for (const std::size_t slot : slots) out << slot << ",\n";
  out << "};\nconst std::size_t kSlotCount = " << slots.size() << ";\n";
}

void write(std::ostream& out, const std::vector<Header>& headers) {
  if (headers.size() > Set::kMost)
    throw std::runtime_error("preamble: more headers than sets have");
  check(headers);
  std::array<std::vector<Set>, kDevices> needs;
  struct NameSets {
    std::array<Set, kDevices> declared_by = {};
    std::array<Set, kDevices> asks_for = {};
  };
  std::map<std::string, NameSets> names;
  for (int device = 0; device < kDevices; ++device) {
    needs[device] = closures(headers, device);
    for (const auto& [name, set] : asked_for(headers, needs[device], device))
      names[name].asks_for[device] = set;
    for (std::size_t i = 0; i < headers.size(); ++i) {
      for (const std::string& name : headers[i].names[device])
        names[name].declared_by[device] |= Set::only(i);
    }
  }
  out << "#include \"preamble/tables.hpp\"\n\nnamespace kiln::preamble {\n\n"
      << "using namespace std::string_view_literals;\n\nconst Piece kPieces[] = {\n";
  std::vector<std::size_t> ends;
  for (const Header& header : headers) {
    const std::size_t before = ends.empty() ? 0 : ends.back();
    ends.push_back(before + write_pieces(out, header));
  }
  out << "};\n\nconst Header kHeaders[] = {\n";
  for (std::size_t i = 0; i < headers.size(); ++i) {
    out << "{\"" << headers[i].name << "\"sv, ";
    write_sets(out, {needs[0][i], needs[1][i], needs[2][i]});
    out << ", " << (i == 0 ? 0 : ends[i - 1]) << ", " << ends[i] << "},\n";
  }
  out << "};\nconst std::size_t kHeaderCount = " << headers.size()
      << ";\n\nconst Name kNames[] = {\n";
  for (const auto& [name, sets] : names) {
    out << "{\"" << name << "\"sv, ";
    write_sets(out, sets.declared_by);
    out << ", ";
    write_sets(out, sets.asks_for);
    out << "},\n";
  }
  out << "};\n\n";
  std::vector<std::string> words;
  for (const auto& [name, sets] : names) words.push_back(name);
  write_slots(out, words);
  out << "\n}  // namespace kiln::preamble\n";
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::vector<Header> headers;
    for (int i = 2; i < count; ++i) headers.push_back(read_header(arguments[i]));
    std::ofstream out(arguments[1], std::ios::binary);
    write(out, headers);
    out.close();
    if (!out) throw std::runtime_error(std::string("cannot write ") + arguments[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
