# The devices: jit/device/backend.cpp, jit/device/cpu/ and jit/device/hip/. The GPU backend (jit/device/hip/hip_backend.inl) is
# compiled twice: amd.cpp against the platform's HIP headers, where they are installed, and nvidia.cpp
# against ours over the CUDA driver. Neither links the library it calls; both find it at run time.
set(DEVICE_SOURCES
  device/backend.cpp
  device/dependencies.cpp
  device/graph.cpp
  device/operation_list.cpp
  device/launch_geometry.cpp
  device/cpu/cpu_backend.cpp
  device/cpu/shared_object.cpp
  device/cpu/threads.cpp
  device/hip/nvidia.cpp
  device/hip/cuda/cuda_driver.cpp
  device/hip/cuda/hip_over_cuda.cpp
  device/hip/cuda/hip_graphs_over_cuda.cpp)

set_source_files_properties(
  device/hip/nvidia.cpp device/hip/cuda/hip_over_cuda.cpp device/hip/cuda/hip_graphs_over_cuda.cpp
  PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_CURRENT_SOURCE_DIR}/device/hip/cuda)

file(GLOB KILN_ROCM_DIRS LIST_DIRECTORIES true /opt/rocm /opt/rocm-*)
list(TRANSFORM KILN_ROCM_DIRS APPEND /include)
find_path(KILN_HIP_INCLUDE_DIR hip/hip_runtime_api.h
  HINTS ENV ROCM_PATH ENV HIP_PATH PATHS ${KILN_ROCM_DIRS} PATH_SUFFIXES include
  DOC "Where hip/hip_runtime_api.h is; without it kiln is built without AMD GPUs")
if(KILN_HIP_INCLUDE_DIR)
  list(APPEND DEVICE_SOURCES device/hip/amd.cpp)
  set(KILN_HIP_OPTIONS -D__HIP_PLATFORM_AMD__
    "-DKILN_HIP_LIBRARY_DIR=\"${KILN_HIP_INCLUDE_DIR}/../lib\"")
  if(NOT KILN_HIP_INCLUDE_DIR STREQUAL "/usr/include")
    list(APPEND KILN_HIP_OPTIONS -isystem ${KILN_HIP_INCLUDE_DIR})
  endif()
  set_source_files_properties(device/hip/amd.cpp PROPERTIES COMPILE_OPTIONS "${KILN_HIP_OPTIONS}")
else()
  message(STATUS "kiln: no hip/hip_runtime_api.h (Debian, Ubuntu: libamdhip64-dev; AMD: "
    "hip-runtime-amd-dev): AMD kernels compile but do not run")
  list(APPEND DEVICE_SOURCES device/hip/amd_absent.cpp)
endif()
