# Functions, kernels and graphs on devices: what a GPU machine is to run (ctest -L gpu), and the same
# over the driver made for tests.
kiln_test_objects(graph_tests LIBRARIES kiln fmt::fmt SOURCES capture_test.cpp decode_test.cpp
  graph_test.cpp kernel_test.cpp programs_test.cpp stress_test.cpp)
kiln_test(src_graph MODULES files LIBRARIES kiln fmt::fmt LABELS gpu
  SOURCES $<TARGET_OBJECTS:graph_tests>)
add_dependencies(src_graph kiln-compile-worker)
kiln_host_driver_test(src_graph_host_driver SOURCES $<TARGET_OBJECTS:graph_tests>)
kiln_host_driver_test(src_load_failure SOURCES load_failure_test.cpp)
kiln_test(src_hot_path LIBRARIES kiln fmt::fmt LABELS gpu
  SOURCES hot_path_test.cpp ${PROJECT_SOURCE_DIR}/tests/support/counted.cpp)
add_dependencies(src_hot_path kiln-compile-worker)
kiln_test(src_tool_graph LIBRARIES kiln fmt::fmt nlohmann_json::nlohmann_json
  SOURCES tool_graph_test.cpp)
target_compile_definitions(src_tool_graph PRIVATE KILN_TOOL="$<TARGET_FILE:kiln_tool>")
add_dependencies(src_tool_graph kiln_tool kiln-compile-worker)
