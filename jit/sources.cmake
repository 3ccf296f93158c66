# What a worker needs: the search for compilers, and the compilers. The rest is for its parent.
set(COMPILER_SOURCES
  compilers/comgr.cpp compilers/compiler.cpp compilers/hiprtc.cpp compilers/host.cpp
  compilers/nvrtc.cpp compilers/objdump.cpp compilers/offload_bundle.cpp compilers/protocol.cpp
  compilers/runtime_compiler.cpp
  toolchain/environment.cpp toolchain/find.cpp toolchain/host_features.cpp toolchain/target.cpp)
set(SERVICE_SOURCES
  compilers/resources.cpp
  toolchain/file_identity.cpp toolchain/host_identity.cpp toolchain/settings.cpp
  toolchain/toolchain.cpp toolchain/toolchain_cache.cpp
  service/compile_requests.cpp service/diagnostics.cpp service/pool.cpp service/process_service.cpp
  service/queries.cpp service/service.cpp service/target_knowledge.cpp service/worker_process.cpp
  service/workers.cpp)

# Where a worker is looked for besides beside the library: as installed, seen from the library or the
# tool, and last under the prefix. What is not installed finds it in the build tree.
file(RELATIVE_PATH KILN_LIBEXEC_FROM_LIB
  "${CMAKE_INSTALL_FULL_LIBDIR}" "${CMAKE_INSTALL_FULL_LIBEXECDIR}")
file(RELATIVE_PATH KILN_LIBEXEC_FROM_BIN
  "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBEXECDIR}")
if(KILN_INSTALL)
  set(KILN_WORKER_DEFAULT "${CMAKE_INSTALL_FULL_LIBEXECDIR}/kiln/kiln-compile-worker")
else()
  set(KILN_WORKER_DEFAULT "${CMAKE_CURRENT_BINARY_DIR}/kiln-compile-worker")
endif()
set_source_files_properties(toolchain/settings.cpp PROPERTIES COMPILE_DEFINITIONS
  "KILN_WORKER_FROM_LIB=\"${KILN_LIBEXEC_FROM_LIB}/kiln/kiln-compile-worker\";KILN_WORKER_FROM_BIN=\"${KILN_LIBEXEC_FROM_BIN}/kiln/kiln-compile-worker\";KILN_WORKER_DEFAULT=\"${KILN_WORKER_DEFAULT}\"")

# A worker is linked without libkiln, so that it starts fast and stays small. The tests make one more.
kiln_module(compilers SOURCES ${COMPILER_SOURCES}
  LIBRARIES fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})

add_executable(kiln-compile-worker service/worker/main.cpp service/worker/serve.cpp)
target_link_libraries(kiln-compile-worker PRIVATE kiln_flags kiln_compilers kiln_base)
if(KILN_INSTALL)
  install(TARGETS kiln-compile-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kiln
    COMPONENT tool)
endif()
