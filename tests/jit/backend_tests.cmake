kiln_test(kiln_backend_tests MODULES jit cache base
  SOURCES backend_registry_test.cpp backend_launch_geometry_test.cpp dependencies_test.cpp graph_arguments_test.cpp
    cpu_threads_test.cpp usable_cores_test.cpp
    cpu_shared_object_test.cpp backend_fixtures.cpp)

# The same promises on every device: the CPU always, AMD and NVIDIA where there is one.
kiln_test_objects(device_tests LIBRARIES fmt::fmt
  SOURCES backend_device_test.cpp graph_device_test.cpp hip_device_test.cpp backend_fixtures.cpp)
kiln_test(kiln_device_tests MODULES jit cache base LABELS gpu SOURCES $<TARGET_OBJECTS:device_tests>)

# The same again over a CUDA driver made for tests, so that a machine without a GPU tests what the GPU
# backend does on the host, and what it does when a driver fails.
add_library(kiln_host_driver SHARED hip_host_driver.cpp)
target_include_directories(kiln_host_driver PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(kiln_host_driver PRIVATE kiln_flags ${CMAKE_DL_LIBS})
set_target_properties(kiln_host_driver PROPERTIES
  OUTPUT_NAME cuda VERSION 1 SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/host_driver)
kiln_test(kiln_host_driver_tests MODULES jit cache base
  SOURCES $<TARGET_OBJECTS:device_tests> hip_fault_test.cpp)
add_dependencies(kiln_host_driver_tests kiln_host_driver)
# DT_RPATH, which comes before LD_LIBRARY_PATH: the driver is found even where there is a real one.
set_target_properties(kiln_host_driver_tests PROPERTIES
  BUILD_RPATH ${CMAKE_CURRENT_BINARY_DIR}/host_driver)
target_link_options(kiln_host_driver_tests PRIVATE -Wl,--disable-new-dtags)

# An NVRTC for the same driver, so that the whole library runs over it (tests/src).
add_library(kiln_host_nvrtc SHARED host_nvrtc.cpp)
target_link_libraries(kiln_host_nvrtc PRIVATE kiln_flags)
set_target_properties(kiln_host_nvrtc PROPERTIES
  OUTPUT_NAME nvrtc VERSION 13 SOVERSION 13
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/host_driver)

# kiln_host_driver_test(name SOURCES ...): tests of the library over that driver.
function(kiln_host_driver_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES" ${ARGN})
  kiln_test(${name} MODULES files manifest runtime jit fusion cache preamble base
    LIBRARIES fmt::fmt TBB::tbb PkgConfig::XXHASH PkgConfig::ZSTD
    SOURCES ${TEST_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/host_driver.cpp)
  add_dependencies(${name} kiln_host_driver kiln_host_nvrtc kiln-compile-worker)
  target_compile_definitions(${name} PRIVATE KILN_HOST_NVRTC="$<TARGET_FILE:kiln_host_nvrtc>")
  set_target_properties(${name} PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:kiln_host_driver>)
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endfunction()
