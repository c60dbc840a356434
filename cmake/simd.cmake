# src/compute/cpu/ops_<isa>.c is compiled for that instruction set; the dispatcher picks one at run time. -O3: the kernel bodies
# count on loops of constant length being unrolled into registers.
set(ISA_portable -Wno-psabi) # its vectors never cross a call; without AVX gcc warns about their calling convention
set(ISA_neon)
set(ISA_avx2 -mavx2 -mfma -mf16c)
set(ISA_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
set(ISA_ALL -O3)
if(ASHLAR_SANITIZE OR ASHLAR_COVERAGE)
  set(ISA_ALL -O1) # instrumented and unrolled, they take a compiler minutes
  if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    list(APPEND ISA_ALL -gline-tables-only) # where each of their variables is takes it a fifth of that
  endif()
  if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND ASHLAR_SANITIZE MATCHES "undefined")
    # so they do with a check of every pointer; ASan sees what these would
    list(APPEND ISA_ALL -fno-sanitize=pointer-overflow,null,alignment,object-size)
  endif()
endif()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND ISA_ALL -fno-schedule-insns) # the bodies are written in the order in which they should run
endif()
foreach(isa portable neon avx2 avx512)
  if(isa MATCHES "avx" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    continue() # the file is empty on this architecture, and the compiler would not know the flags
  endif()
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compute/cpu/ops_${isa}.c PROPERTIES COMPILE_OPTIONS "${ISA_ALL};${ISA_${isa}}")
endforeach()

# Normal draws, and quantised matrices written out, in loops that become vectors.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/model/lora_dense.c PROPERTIES COMPILE_OPTIONS "${ISA_ALL}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/rng.c PROPERTIES COMPILE_OPTIONS "${ISA_ALL}")

# How every instruction set's products are cut.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compute/cpu/gemm/gemm_blocks.c PROPERTIES COMPILE_OPTIONS "${ISA_ALL}")

# Products with quantised matrices: a kernel per instruction, src/compute/cpu/quant/quant_<isa>.c, and their driver.
set(QUANT_dot -march=armv8.2-a+dotprod)
set(QUANT_open_dot ${QUANT_dot})
set(QUANT_i8mm -march=armv8.2-a+dotprod+i8mm)
set(QUANT_panel_i8mm -march=armv8.2-a+dotprod+i8mm+fp16)
set(QUANT_q8_i8mm ${QUANT_panel_i8mm})
set(QUANT_gemv_i8mm ${QUANT_panel_i8mm})
set(QUANT_open_i8mm ${QUANT_panel_i8mm})
set(QUANT_open_gemv_i8mm ${QUANT_panel_i8mm})
set(QUANT_avx2 ${ISA_avx2})
set(QUANT_pack_vnni ${ISA_avx512})
set(QUANT_panel_vnni ${ISA_avx512} -mavx512vnni)
set(QUANT_open_vnni ${QUANT_panel_vnni})
set(QUANT_panel_amx ${ISA_avx512} -mamx-tile)
set(QUANT_q8_amx ${ISA_avx512} -mavx512fp16 -mamx-tile)
set(QUANT_KERNELS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(QUANT_KERNELS dot open_dot i8mm panel_i8mm q8_i8mm gemv_i8mm open_i8mm open_gemv_i8mm)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(QUANT_KERNELS avx2 pack_vnni panel_vnni open_vnni panel_amx q8_amx)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compute/cpu/quant/quant.c PROPERTIES COMPILE_OPTIONS "${ISA_ALL}")
foreach(kernel ${QUANT_KERNELS})
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compute/cpu/quant/quant_${kernel}.c PROPERTIES
    COMPILE_OPTIONS "${ISA_ALL};${QUANT_${kernel}}")
endforeach()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compute/cpu/gemm/gemm_amx.c
    PROPERTIES COMPILE_OPTIONS "${ISA_ALL};${ISA_avx512};-mavx512bf16;-mamx-tile;-mamx-bf16")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  # Every extension spelt out: compilers differ in what a version implies.
  set(ISA_bfmmla -march=armv8.4-a+bf16+i8mm+fp16+dotprod)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/compute/cpu/gemm/gemm_bfmmla.c ${CMAKE_SOURCE_DIR}/src/compute/cpu/gemm/gemm_small_m_bfmmla.c
    PROPERTIES COMPILE_OPTIONS "${ISA_ALL};${ISA_bfmmla}")
endif()
