# The GPU's kernels: every src/compute/cuda/*.cu becomes a fatbin (sm_90a), and the library carries them all. Without an nvcc
# that knows sm_90a the library carries none and `ashlar version` says so. ptxas writes beside each image what its kernels take
# (registers, spills, shared memory); tests/e2e/cuda_report.sh reads it.
set(ASHLAR_CUDA_ARCHS "90a" CACHE STRING "compute capabilities that GPU kernels are compiled for")
file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/cuda/*.cu)
file(GLOB CUDA_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/cuda/*.cuh ${CMAKE_SOURCE_DIR}/src/compute/cuda/*.h)
set(CUDA_SHARED_HEADERS ${CMAKE_SOURCE_DIR}/src/compute/ops.h ${CMAKE_SOURCE_DIR}/src/compute/mathf.h
    ${CMAKE_SOURCE_DIR}/src/base/bits.h ${CMAKE_SOURCE_DIR}/src/base/bf16.h ${CMAKE_SOURCE_DIR}/src/base/device_code.h)
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
if(NVCC AND NOT NVCC_VERSION VERSION_LESS 12.3)
  set(gencode)
  foreach(arch ${ASHLAR_CUDA_ARCHS})
    list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  foreach(kernel ${CUDA_KERNELS})
    get_filename_component(name ${kernel} NAME_WE)
    set(fatbin ${CMAKE_BINARY_DIR}/generated/${name}.fatbin)
    # --fmad=false: the order of every operation is part of the promise; a fused multiply-add happens where the source says so.
    add_custom_command(OUTPUT ${fatbin} DEPENDS ${kernel} ${CUDA_HEADERS} ${CUDA_SHARED_HEADERS} VERBATIM
      COMMAND sh -c "$0 \"$@\" -Xptxas -v > ${CMAKE_BINARY_DIR}/generated/${name}.ptxas 2>&1 || { cat ${CMAKE_BINARY_DIR}/generated/${name}.ptxas; exit 1; }"
              ${NVCC} -std=c++17 -O3 --fmad=false -fatbin ${gencode} -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
              ${kernel} -o ${fatbin}
      COMMENT "Compiling GPU kernels ${name}.cu")
    list(APPEND CUDA_FATBINS ${fatbin})
    string(APPEND table "extern const unsigned char ash_fatbin_${name}[];\n"
      "__asm__(\".section .rodata\\n.balign 16\\n.global ash_fatbin_${name}\\nash_fatbin_${name}:\\n.incbin \\\"${fatbin}\\\"\\n.previous\");\n")
    string(APPEND rows "    {\"${name}\", ash_fatbin_${name}},\n")
  endforeach()
endif()
file(GENERATE OUTPUT ${CUDA_TABLE} CONTENT "${table}\nconst struct ash_cuda_image ash_cuda_images[] = {\n${rows}    {0},\n};\n")
set_source_files_properties(${CUDA_TABLE} PROPERTIES OBJECT_DEPENDS "${CUDA_FATBINS}")
target_sources(ashlar_lib PRIVATE ${CUDA_TABLE})
target_link_libraries(ashlar_lib PUBLIC ${CMAKE_DL_LIBS})
