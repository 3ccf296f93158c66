# The compile service: what a worker needs, what only its parent needs, and the worker itself.
set(COMPILER_SOURCES
  compile/comgr.cpp
  compile/compiler.cpp
  compile/elf.cpp
  compile/environment.cpp
  compile/find.cpp
  compile/hiprtc.cpp
  compile/host.cpp
  compile/host_features.cpp
  compile/mapped_file.cpp
  compile/nvrtc.cpp
  compile/objdump.cpp
  compile/offload_bundle.cpp
  compile/protocol.cpp
  compile/runtime_compiler.cpp
  compile/subprocess.cpp
  compile/target.cpp
  compile/temporary.cpp)
set(COMPILE_SOURCES
  ${COMPILER_SOURCES}
  compile/diagnostics.cpp
  compile/memory.cpp
  compile/pool.cpp
  compile/process_service.cpp
  compile/service.cpp
  compile/service_compile.cpp
  compile/service_queries.cpp
  compile/service_workers.cpp
  compile/settings.cpp
  compile/target_knowledge.cpp
  compile/toolchain.cpp
  compile/worker_process.cpp
  resources.cpp)

# Where a worker is looked for: beside the installed library, in this build, under the prefix.
file(RELATIVE_PATH KILN_LIBEXEC_FROM_LIB
  "${CMAKE_INSTALL_FULL_LIBDIR}" "${CMAKE_INSTALL_FULL_LIBEXECDIR}")
set(KILN_WORKER_LOCATIONS
  KILN_WORKER_RELATIVE="${KILN_LIBEXEC_FROM_LIB}/kiln/kiln-compile-worker"
  KILN_WORKER_BUILT="${CMAKE_CURRENT_BINARY_DIR}/kiln-compile-worker"
  KILN_WORKER_INSTALLED="${CMAKE_INSTALL_FULL_LIBEXECDIR}/kiln/kiln-compile-worker")
set_source_files_properties(compile/settings.cpp PROPERTIES
  COMPILE_DEFINITIONS "${KILN_WORKER_LOCATIONS}")

# A worker is linked without libkiln, so that it starts fast and stays small. The tests make one more.
add_library(kiln_compilers OBJECT ${COMPILER_SOURCES})
target_include_directories(kiln_compilers PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(kiln_compilers PRIVATE kiln_flags PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})

add_executable(kiln-compile-worker worker/main.cpp worker/serve.cpp)
target_compile_definitions(kiln-compile-worker PRIVATE KILN_VERSION="${PROJECT_VERSION}")
target_link_libraries(kiln-compile-worker PRIVATE kiln_flags kiln_compilers kiln_vocabulary)
install(TARGETS kiln-compile-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kiln)
