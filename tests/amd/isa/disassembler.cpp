// See disassembler.hpp.
#include "tests/amd/isa/disassembler.hpp"

#include "jit/compilers/comgr.hpp"
#include "kiln/error.hpp"

namespace kiln::amd {

Disassembler comgr_disassembler() {
  return [](const std::string& code, const std::string& target) {
    static const std::string library = find_comgr();
    if (library.empty()) {
      throw Error(Code::not_found,
                  "disassembly of AMD code needs libamd_comgr (Debian, Ubuntu: libamd-comgr2)");
    }
    // Without features, which comgr of ROCm 5.2 reads beyond their end.
    return jit::disassemble_with_comgr(library, {code, target.substr(0, target.find(':'))});
  };
}

}  // namespace kiln::amd
