# The GPU's kernels: every src/compute/cuda/*/*.cu becomes a fatbin (sm_90a), and the library carries them all. ptxas writes beside
# each image what its kernels take (registers, spills, shared memory); tests/e2e/cuda_report.sh reads it. Where there is no nvcc
# that knows sm_90a, -DASHLAR_FATBIN=FOLDER takes the fatbins of a build that had one: its generated/kernels, which says in
# kernels.txt what they are compiled for and from which sources. Without either the library carries none, and `ashlar version`
# says so.
set(ASHLAR_CUDA_ARCHS "90a" CACHE STRING "compute capabilities that GPU kernels are compiled for, e.g. 80;90a;100;120")
set(ASHLAR_FATBIN "" CACHE PATH "folder of GPU kernels that another build compiled (its generated/kernels)")
file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/cuda/*/*.cu)
file(GLOB CUDA_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/cuda/*/*.cuh ${CMAKE_SOURCE_DIR}/src/compute/cuda/*/*.h)
file(GLOB CUDA_SHARED_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/*.h)
foreach(name range bits bf16 dtype device_code hash rng_draw)
  list(APPEND CUDA_SHARED_HEADERS ${CMAKE_SOURCE_DIR}/src/base/${name}.h)
endforeach()
set(CUDA_TABLE ${CMAKE_BINARY_DIR}/generated/cuda_images.c)
set(CUDA_FATBINS)
set(table "/* The kernels of this build, one image per .cu file. */\n#include \"compute/cuda/images.h\"\n\n")
set(rows "")
set(NVCC_VERSION 0)
if(NVCC)
  execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE nvcc_says)
  string(REGEX MATCH "release ([0-9.]+)" found "${nvcc_says}")
  set(NVCC_VERSION ${CMAKE_MATCH_1})
endif()

# What the kernels are made from: a fatbin of other sources has other arguments, or other bits.
set(CUDA_SOURCES)
foreach(file ${CUDA_KERNELS} ${CUDA_HEADERS} ${CUDA_SHARED_HEADERS})
  file(SHA256 ${file} hash)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${file})
  string(APPEND CUDA_SOURCES "${name} ${hash}\n")
endforeach()
string(SHA256 CUDA_SOURCES "${CUDA_SOURCES}")

# The image of one .cu file is at this path.
function(add_image name fatbin)
  set(CUDA_FATBINS ${CUDA_FATBINS} ${fatbin} PARENT_SCOPE)
  set(table "${table}extern const unsigned char ash_fatbin_${name}[];\n__asm__(\".section .rodata\\n.balign 16\\n.global ash_fatbin_${name}\\nash_fatbin_${name}:\\n.incbin \\\"${fatbin}\\\"\\n.previous\");\n" PARENT_SCOPE)
  set(rows "${rows}    {\"${name}\", ash_fatbin_${name}},\n" PARENT_SCOPE)
endfunction()

set(archs "")
if(ASHLAR_FATBIN)
  if(NOT EXISTS ${ASHLAR_FATBIN}/kernels.txt)
    message(FATAL_ERROR "ASHLAR_FATBIN: ${ASHLAR_FATBIN} has no kernels.txt: it is the folder generated/kernels of a build with nvcc")
  endif()
  file(STRINGS ${ASHLAR_FATBIN}/kernels.txt manifest)
  list(GET manifest 0 archs)
  list(GET manifest 1 sources)
  if(NOT sources STREQUAL CUDA_SOURCES)
    message(FATAL_ERROR "ASHLAR_FATBIN: ${ASHLAR_FATBIN} was compiled from other sources than these: build both from one commit")
  endif()
  foreach(kernel ${CUDA_KERNELS})
    get_filename_component(name ${kernel} NAME_WE)
    if(NOT EXISTS ${ASHLAR_FATBIN}/${name}.fatbin)
      message(FATAL_ERROR "ASHLAR_FATBIN: ${ASHLAR_FATBIN} has no ${name}.fatbin")
    endif()
    add_image(${name} ${ASHLAR_FATBIN}/${name}.fatbin)
  endforeach()
elseif(NVCC AND NOT NVCC_VERSION VERSION_LESS 12.3)
  string(REPLACE ";" " " archs "${ASHLAR_CUDA_ARCHS}")
  set(gencode)
  foreach(arch ${ASHLAR_CUDA_ARCHS})
    list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  file(WRITE ${CMAKE_BINARY_DIR}/generated/kernels/kernels.txt "${archs}\n${CUDA_SOURCES}\n")
  foreach(kernel ${CUDA_KERNELS})
    get_filename_component(name ${kernel} NAME_WE)
    set(fatbin ${CMAKE_BINARY_DIR}/generated/kernels/${name}.fatbin)
    # --fmad=false: the order of every operation is part of the promise; a fused multiply-add happens where the source says so.
    add_custom_command(OUTPUT ${fatbin} DEPENDS ${kernel} ${CUDA_HEADERS} ${CUDA_SHARED_HEADERS} VERBATIM
      COMMAND sh -c "$0 \"$@\" -Xptxas -v > ${CMAKE_BINARY_DIR}/generated/${name}.ptxas 2>&1 || { cat ${CMAKE_BINARY_DIR}/generated/${name}.ptxas; exit 1; }"
              ${NVCC} -std=c++17 -O3 --fmad=false -fatbin ${gencode} -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
              ${kernel} -o ${fatbin}
      COMMENT "Compiling GPU kernels ${name}.cu")
    add_image(${name} ${fatbin})
  endforeach()
endif()
file(GENERATE OUTPUT ${CUDA_TABLE} CONTENT "${table}\nconst struct ash_cuda_image ash_cuda_images[] = {\n${rows}    {0},\n};\nconst char ash_cuda_archs[] = \"${archs}\";\n")
# The same table with images of nothing, for tests that run on a stand-in of the driver (tests/standin/libcuda.c).
set(rows "")
foreach(kernel ${CUDA_KERNELS})
  get_filename_component(name ${kernel} NAME_WE)
  string(APPEND rows "    {\"${name}\", (const unsigned char *)\"\"},\n")
endforeach()
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/standin_images.c CONTENT
  "#include \"compute/cuda/images.h\"\n\nconst struct ash_cuda_image ash_cuda_images[] = {\n${rows}    {0},\n};\nconst char ash_cuda_archs[] = \"90a\";\n")
set_source_files_properties(${CUDA_TABLE} PROPERTIES OBJECT_DEPENDS "${CUDA_FATBINS}")
target_sources(ashlar_lib PRIVATE ${CUDA_TABLE})
target_link_libraries(ashlar_lib PUBLIC ${CMAKE_DL_LIBS})
