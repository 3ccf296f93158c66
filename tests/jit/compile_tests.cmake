kiln_test(compile_test ROOMS jit vocabulary
  SOURCES compile_test.cpp resources_test.cpp
  LIBRARIES nlohmann_json::nlohmann_json)
add_dependencies(compile_test kiln-compile-worker)
