# The GPU's kernels on the host: every src/compute/cuda/*/*.cu is compiled by the C++ compiler into a shared library of its own,
# build/emulator/NAME.so, with tests/emulate/include in place of src/compute/cuda/ptx. The driver beside them, libcuda.so.1, runs
# them (tests/emulate/README.md). Not with sanitizers, which do not know fibers.
set(EMULATOR_FOLDER ${CMAKE_BINARY_DIR}/emulator)
set(EMULATE ${CMAKE_SOURCE_DIR}/tests/emulate)
set(EMULATE_FLAGS -std=c++17 -O2 -g1 -Wall -Wno-unknown-pragmas -Wno-unused-function -Wno-unused-variable -Wno-sign-compare -Wno-psabi -ffp-contract=off -fno-strict-aliasing
  -fno-math-errno -fvisibility=hidden -fno-stack-protector)
set(KERNELS_LIST ${CMAKE_SOURCE_DIR}/src/compute/cuda/host/kernels_list.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${KERNELS_LIST})

file(GLOB EMULATOR_SOURCES CONFIGURE_DEPENDS ${EMULATE}/*.cpp)
add_library(emulator SHARED ${EMULATOR_SOURCES} ${CMAKE_SOURCE_DIR}/tests/standin/libcuda.c)
set_target_properties(emulator PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${EMULATOR_FOLDER})
target_include_directories(emulator PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(emulator PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-std=c++17 -O2 -Wall -Wextra -ffp-contract=off -fno-strict-aliasing>)
target_compile_definitions(emulator PRIVATE _GNU_SOURCE)
target_link_libraries(emulator PRIVATE ashlar_lib)

# The library NAME.so of a .cu file, whose kernels are the arguments after it.
function(add_emulated_image name source)
  set(kernels "")
  foreach(kernel ${ARGN})
    string(APPEND kernels " EMU_KERNEL(${kernel})")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/emulated/${name}.cpp
    CONTENT "#include \"emulate/cuda.h\"\n#include \"${source}\"\n#define EMU_KERNELS${kernels}\n#include \"emulate/image.h\"\n")
  add_library(emulated_${name} MODULE ${CMAKE_BINARY_DIR}/generated/emulated/${name}.cpp)
  set_target_properties(emulated_${name} PROPERTIES PREFIX "" OUTPUT_NAME ${name} SUFFIX .so LIBRARY_OUTPUT_DIRECTORY ${EMULATOR_FOLDER})
  target_include_directories(emulated_${name} BEFORE PRIVATE ${EMULATE}/include ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src
    ${CMAKE_SOURCE_DIR}/include)
  target_compile_options(emulated_${name} PRIVATE ${EMULATE_FLAGS})
  target_link_libraries(emulated_${name} PRIVATE emulator)
endfunction()

set(emulated_rows "")
set(EMULATED)
foreach(source ${CUDA_KERNELS})
  get_filename_component(name ${source} NAME_WE)
  file(STRINGS ${KERNELS_LIST} lines REGEX "^KERNEL\\(${name}, ")
  set(names)
  foreach(line ${lines})
    string(REGEX REPLACE "^KERNEL\\([a-z0-9_]+, ([a-z0-9_]+)\\).*" "\\1" kernel ${line})
    list(APPEND names ${kernel})
  endforeach()
  add_emulated_image(${name} ${source} ${names})
  list(APPEND EMULATED emulated_${name})
  string(APPEND emulated_rows "    {\"${name}\", (const unsigned char *)\"${name}\"},\n")
endforeach()
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/emulated_images.c CONTENT
  "#include \"compute/cuda/images.h\"\n\nconst struct ash_cuda_image ash_cuda_images[] = {\n${emulated_rows}    {0},\n};\nconst char ash_cuda_archs[] = \"90a\";\n")

# Conformance of the ops on emulated kernels: emulate_NAME is conform/test_NAME.c, whose driver is the emulator.
function(add_emulated_test name)
  add_executable(emulate_${name} conform/test_${name}.c ${CMAKE_BINARY_DIR}/generated/emulated_images.c)
  target_include_directories(emulate_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(emulate_${name} PRIVATE TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}" EMULATED=1)
  target_link_libraries(emulate_${name} PRIVATE ashlar_lib ashlar_flags PkgConfig::CMOCKA)
  set_target_properties(emulate_${name} PROPERTIES BUILD_RPATH ${EMULATOR_FOLDER})
  add_dependencies(emulate_${name} emulator ${EMULATED})
  add_test(NAME emulate_${name} COMMAND emulate_${name})
  # few multiprocessors: small products have as many tiles for each as large ones on a GPU
  set_tests_properties(emulate_${name} PROPERTIES TIMEOUT 900 ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0;STANDIN_SMS=24")
endfunction()

# The same on a GPU that gets the portable kernels.
function(add_portable_test name)
  add_test(NAME emulate_${name}_portable COMMAND emulate_${name})
  set_tests_properties(emulate_${name}_portable PROPERTIES TIMEOUT 900 ENVIRONMENT STANDIN_MAJOR=8)
endfunction()

# What it finds: kernels with mistakes.
add_emulated_image(planted ${EMULATE}/planted.cu planted_ring planted_product)
list(APPEND EMULATED emulated_planted)
add_executable(emulate_planted ${EMULATE}/test_emulator.c)
target_include_directories(emulate_planted PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(emulate_planted PRIVATE ashlar_lib ashlar_flags PkgConfig::CMOCKA)
set_target_properties(emulate_planted PROPERTIES BUILD_RPATH ${EMULATOR_FOLDER})
add_dependencies(emulate_planted emulator emulated_planted)
add_test(NAME emulate_planted COMMAND emulate_planted)
set_tests_properties(emulate_planted PROPERTIES TIMEOUT 300)

# PROGRAM_emulated: the program on emulated kernels.
function(add_emulated_program name)
  add_executable(${name}_emulated $<TARGET_OBJECTS:${name}> ${CMAKE_BINARY_DIR}/generated/emulated_images.c)
  target_link_libraries(${name}_emulated PRIVATE $<TARGET_PROPERTY:${name},LINK_LIBRARIES>)
  target_link_options(${name}_emulated PRIVATE $<TARGET_PROPERTY:${name},LINK_OPTIONS>)
  set_target_properties(${name}_emulated PROPERTIES BUILD_RPATH ${EMULATOR_FOLDER})
  add_dependencies(${name}_emulated emulator ${EMULATED})
endfunction()
add_emulated_program(ashlar)
