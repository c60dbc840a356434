# A toolchain file: build for x86-64 on another machine (scripts/gpu_bundle.sh). PKG_CONFIG_LIBDIR says where that machine's
# libraries are.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
