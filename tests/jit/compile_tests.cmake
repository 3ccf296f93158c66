# A worker that fails on demand, from the same sources as the real one.
add_executable(kiln-faulty-worker
  ${PROJECT_SOURCE_DIR}/jit/service/worker/main.cpp ${PROJECT_SOURCE_DIR}/jit/service/worker/serve.cpp
  ${PROJECT_SOURCE_DIR}/tests/jit/compile_faults.cpp)
target_compile_definitions(kiln-faulty-worker PRIVATE KILN_WORKER_FAULTS KILN_VERSION="${PROJECT_VERSION}")
target_link_libraries(kiln-faulty-worker PRIVATE kiln_flags kiln_compilers kiln_base)

add_executable(kiln-doomed-parent ${PROJECT_SOURCE_DIR}/tests/jit/compile_doomed_parent.cpp)
target_link_libraries(kiln-doomed-parent PRIVATE kiln_flags kiln_jit kiln_cache kiln_base)

add_executable(kiln-privileged ${PROJECT_SOURCE_DIR}/tests/jit/compile_privileged.cpp)
target_link_libraries(kiln-privileged PRIVATE kiln_flags kiln_jit kiln_cache kiln_base)

kiln_test(compile_test MODULES jit cache base
  SOURCES compile_test.cpp compile_hiprtc_test.cpp compile_parts_test.cpp compile_service_test.cpp compile_fault_test.cpp
    compile_start_test.cpp host_identity_test.cpp toolchain_memory_test.cpp resources_test.cpp
  LIBRARIES nlohmann_json::nlohmann_json)
add_dependencies(compile_test kiln-compile-worker kiln-faulty-worker kiln-doomed-parent kiln-privileged)
target_compile_definitions(compile_test PRIVATE KILN_TEST_WORKER="$<TARGET_FILE:kiln-faulty-worker>"
  KILN_TEST_PARENT="$<TARGET_FILE:kiln-doomed-parent>"
  KILN_TEST_PRIVILEGED="$<TARGET_FILE:kiln-privileged>")

# The same promise about leaks, a thousand compiles long.
add_test(NAME AThousandCompilesLeakNothing COMMAND ${CMAKE_COMMAND} -E env KILN_TEST_COMPILES=1000
  $<TARGET_FILE:compile_test> --gtest_filter=CompileService.leaves_no_descriptor_no_process_and_no_file_behind)
set_tests_properties(AThousandCompilesLeakNothing PROPERTIES LABELS long TIMEOUT 300)
