# Writes PARTS, one after the other, as a string constant into OUTPUT. In pieces, because a compiler
# may limit the length of one literal.
set(text "")
foreach(part IN LISTS PARTS)
  file(READ ${part} content)
  string(REPLACE "#pragma once\n" "" content "${content}")
  get_filename_component(part_name ${part} NAME)
  string(APPEND text ")kiln(\" R\"kiln(// ---- preamble/${part_name}\n${content}")
endforeach()
string(REPLACE ")kiln(\"" ")kiln\"" text "${text}")
file(WRITE ${OUTPUT}
  "#include \"preamble/preamble.hpp\"\n\nnamespace kiln::preamble {\n\n"
  "std::string_view text() {\n  static constexpr char kText[] = R\"kiln(${text})kiln\";\n"
  "  return {kText, sizeof kText - 1};\n}\n\n}  // namespace kiln::preamble\n")
