# Packages for Debian and Ubuntu, by CPack: the library, what is needed to build with it, the tool with
# the compile worker, and the Python package for the system's Python. debian.sh builds them.
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
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)  # of the packaging, of one version
set(KILN_DEBIAN_VERSION ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(debian ${PROJECT_BINARY_DIR}/debian)
file(WRITE ${debian}/triggers "activate-noawait ldconfig\n")
file(WRITE ${debian}/shlibs "libkiln 0 libkiln0 (>= ${PROJECT_VERSION})\n")

# CHANGELOG.md says what a version is and when it came; Debian's changelog only names it.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/CHANGELOG.md KILN_RELEASED REGEX "^## ${PROJECT_VERSION} \\(.*\\)$")
string(REGEX REPLACE ".*\\((.*)\\)" "\\1" KILN_RELEASED "${KILN_RELEASED}")
execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C date -u -R -d "${KILN_RELEASED}" OUTPUT_VARIABLE KILN_RELEASED
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog.in ${debian}/changelog.Debian @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/CHANGELOG.md ${debian}/changelog COPYONLY)
foreach(file changelog changelog.Debian)
  execute_process(COMMAND gzip -9nkf ${debian}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# kiln_package(COMPONENT NAME SECTION SUMMARY DEPENDS): one package, with its copyright and changelogs.
function(kiln_package component name section summary depends)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}
 kiln fuses a chain of array operations into one kernel, compiles it at run
 time for AMD and NVIDIA GPUs or the CPU, and keeps it in a cache on disk." PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  install(FILES ${debian}/changelog.gz ${debian}/changelog.Debian.gz
    ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

kiln_package(library libkiln0 libs "library that fuses array operations into GPU kernels"
  "kiln (= ${KILN_DEBIAN_VERSION})")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${debian}/triggers;${debian}/shlibs")
kiln_package(development libkiln-dev libdevel "headers for fusing array operations into GPU kernels"
  "libkiln0 (= ${KILN_DEBIAN_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
kiln_package(tool kiln devel "tool that fuses array operations into GPU kernels" "")
set(CPACK_DEBIAN_TOOL_PACKAGE_RECOMMENDS "libamdhip64-dev | g++")

if(KILN_BUILD_PYTHON AND KILN_PYTHON_DIRECTORY)
  list(APPEND CPACK_COMPONENTS_ALL python)
  kiln_package(python python3-kiln python "fusion of array operations into GPU kernels (Python 3)"
    "libkiln0 (= ${KILN_DEBIAN_VERSION}), ${KILN_PYTHON_DEPENDS}")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-numpy")
  # Bytecode is made when the package is installed, and is gone with it.
  set(permissions OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  foreach(script postinst prerm)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/python.${script} ${debian}/python/${script} COPYONLY
      FILE_PERMISSIONS ${permissions})
    list(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${debian}/python/${script})
  endforeach()
endif()
include(CPack)
