# What `cmake --install` puts where: the library, its headers, the package files for CMake and
# pkg-config. The tool and the compile worker install themselves beside their targets.
include(CMakePackageConfigHelpers)

set(KILN_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
install(TARGETS kiln EXPORT kiln
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/kiln ${PROJECT_BINARY_DIR}/include/kiln
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)

install(EXPORT kiln NAMESPACE kiln:: FILE kilnTargets.cmake DESTINATION ${KILN_CMAKE_DIR}
  COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kilnConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kilnConfig.cmake INSTALL_DESTINATION ${KILN_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kilnConfig.cmake ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake
  DESTINATION ${KILN_CMAKE_DIR} COMPONENT development)

# A shared libkiln carries its dependencies; a static one hands them to whoever links it.
set(KILN_PC_REQUIRES "")
set(KILN_PC_LIBS "")
if(NOT BUILD_SHARED_LIBS)
  set(KILN_PC_REQUIRES "fmt, tbb, libsodium, libxxhash, libzstd")
  if(HIREDIS_FOUND)
    string(APPEND KILN_PC_REQUIRES ", hiredis")
  endif()
  if(HIREDIS_SSL_FOUND)
    string(APPEND KILN_PC_REQUIRES ", hiredis_ssl, openssl")
  endif()
  set(KILN_PC_LIBS "-pthread -ldl")
endif()
file(RELATIVE_PATH KILN_PREFIX_FROM_PC
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/kiln.pc.in ${PROJECT_BINARY_DIR}/kiln.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kiln.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

if(PROJECT_IS_TOP_LEVEL AND BUILD_SHARED_LIBS)
  include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
endif()
