# What `make install` puts into a prefix for programs that use the library: static and shared library, headers, a
# pkg-config file and a CMake package. The shared library exports what cmake/ashlar.map lists, and holds what that needs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS ashlar ashlar_lib)
add_custom_target(installable DEPENDS ashlar ashlar_lib) # all that `make install` copies
install(DIRECTORY include/ashlar DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Instrumented objects belong into one program with their run-time library: no shared library of them.
set(ASHLAR_SHARED ON)
if(ASHLAR_SANITIZE OR ASHLAR_COVERAGE)
  set(ASHLAR_SHARED OFF)
endif()
if(ASHLAR_SHARED)
  set(map ${CMAKE_SOURCE_DIR}/cmake/ashlar.map)
  file(STRINGS ${map} exports REGEX "^ +ash_[a-z_]+;")
  list(TRANSFORM exports REPLACE "^ +(ash_[a-z_]+);.*" "LINKER:--undefined=\\1")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${map})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/shared.c CONTENT "/* All of it comes from the static library. */\nstruct ash_engine;\n")
  add_library(ashlar_shared SHARED ${CMAKE_BINARY_DIR}/generated/shared.c)
  target_link_libraries(ashlar_shared PRIVATE ashlar_lib)
  target_link_options(ashlar_shared PRIVATE ${exports} LINKER:--version-script=${map} LINKER:--no-undefined LINKER:--as-needed)
  set_target_properties(ashlar_shared PROPERTIES OUTPUT_NAME ashlar VERSION ${PROJECT_VERSION} SOVERSION 0
    LINK_DEPENDS ${map})
  install(TARGETS ashlar_shared)
  add_dependencies(installable ashlar_shared)
endif()

# pkg-config: whoever links the shared library needs nothing else.
if(ASHLAR_SHARED)
  set(PC_PRIVATE .private)
else()
  set(PC_PRIVATE "")
endif()
list(JOIN ASHLAR_MODULES " " ASHLAR_REQUIRES)
foreach(codec ZSTD SNAPPY LZ4 BROTLI)
  if(${codec}_FOUND)
    string(APPEND ASHLAR_REQUIRES " ${${codec}_MODULE_NAME}")
  endif()
endforeach()
if(S3_FOUND)
  string(APPEND ASHLAR_REQUIRES " expat")
endif()
if(URING_FOUND)
  string(APPEND ASHLAR_REQUIRES " liburing")
endif()
file(RELATIVE_PATH PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/") # the prefix is chosen when it is installed
configure_file(cmake/ashlar.pc.in ${CMAKE_BINARY_DIR}/generated/ashlar.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/ashlar.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# CMake: find_package(ashlar), then ashlar::ashlar (shared) or ashlar::static.
set(ASHLAR_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ashlar)
configure_package_config_file(cmake/ashlar-config.cmake.in ${CMAKE_BINARY_DIR}/generated/ashlar-config.cmake
  INSTALL_DESTINATION ${ASHLAR_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/ashlar-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/ashlar-config.cmake ${CMAKE_BINARY_DIR}/generated/ashlar-config-version.cmake
  DESTINATION ${ASHLAR_CMAKE_DIR})
