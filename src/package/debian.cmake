# Packages for Debian and Ubuntu, by CPack: the library, what is needed to build with it, and the tool
# with the compile worker. debian.sh builds them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kiln)
set(CPACK_PACKAGE_CONTACT "The kiln authors <kiln@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/compress.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL library development tool)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
list(APPEND CMAKE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_CURRENT_BINARY_DIR})

file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs "libkiln 0 libkiln0 (>= ${PROJECT_VERSION})\n")

# kiln_package(COMPONENT NAME SECTION SUMMARY DEPENDS): one package, with its copyright and changelog.
function(kiln_package component name section summary depends)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}
 kiln fuses a chain of array operations into one kernel, compiles it at run
 time for AMD and NVIDIA GPUs or the CPU, and keeps it in a cache on disk." PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  find_program(KILN_GZIP gzip)
  set(changelog ${PROJECT_BINARY_DIR}/debian/${name}/changelog.gz)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/debian/${name})
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/changelog.in ${PROJECT_BINARY_DIR}/debian/changelog @ONLY)
  execute_process(COMMAND ${KILN_GZIP} -9nc ${PROJECT_BINARY_DIR}/debian/changelog OUTPUT_FILE ${changelog})
  install(FILES ${changelog} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

kiln_package(library libkiln0 libs "library that fuses array operations into GPU kernels"
  "kiln (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
  "${PROJECT_BINARY_DIR}/debian/triggers;${PROJECT_BINARY_DIR}/debian/shlibs")
kiln_package(development libkiln-dev libdevel "headers for fusing array operations into GPU kernels"
  "libkiln0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
kiln_package(tool kiln devel "tool that fuses array operations into GPU kernels" "")
set(CPACK_DEBIAN_TOOL_PACKAGE_RECOMMENDS "libamdhip64-dev | g++")
include(CPack)
