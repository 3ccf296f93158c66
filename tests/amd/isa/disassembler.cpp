// See disassembler.hpp.
#include "tests/amd/isa/disassembler.hpp"

#include "base/dynamic_library.hpp"
#include "jit/compilers/comgr.hpp"
#include "kiln/error.hpp"

namespace kiln::amd {

Disassembler comgr_disassembler() {
  return [](const std::string& code, const std::string& target) {
    for (const char* name : {"libamd_comgr.so.3", "libamd_comgr.so.2"}) {
      if (base::DynamicLibrary library{std::string(name)}) {
        library.keep_loaded();
        return jit::disassemble_with_comgr(name, {code, target});
      }
    }
    throw Error(Code::not_found,
                "disassembly of AMD code needs libamd_comgr (Debian, Ubuntu: libamd-comgr2)");
  };
}

}  // namespace kiln::amd
