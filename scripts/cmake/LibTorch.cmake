# The target palimpsest::torch: LibTorch's headers and libraries, linked directly. find_package(Torch) would insist on a CUDA toolkit
# for the wheels of PyPI. The wheel's own libraries find nvidia/*/lib by their rpath; the linker needs -rpath-link.
if(NOT PALIMPSEST_TORCH)
  message(FATAL_ERROR "LibTorch is not set: run scripts/setup.sh (it writes CMakeUserPresets.json), or pass -DPALIMPSEST_TORCH=DIR")
endif()
if(NOT EXISTS ${PALIMPSEST_TORCH}/include/ATen/ATen.h)
  message(FATAL_ERROR "No LibTorch in ${PALIMPSEST_TORCH}: include/ATen/ATen.h is missing")
endif()
add_library(palimpsest_torch INTERFACE)
add_library(palimpsest::torch ALIAS palimpsest_torch)
# After the system's own folders: LibTorch ships headers of fmt (another version than the library we link) and others.
target_compile_options(palimpsest_torch INTERFACE
  "SHELL:-idirafter ${PALIMPSEST_TORCH}/include" "SHELL:-idirafter ${PALIMPSEST_TORCH}/include/torch/csrc/api/include")
target_link_libraries(palimpsest_torch INTERFACE ${PALIMPSEST_TORCH}/lib/libtorch_cpu.so ${PALIMPSEST_TORCH}/lib/libc10.so)
target_link_options(palimpsest_torch INTERFACE -Wl,-rpath,${PALIMPSEST_TORCH}/lib)
file(GLOB _nvidia ${PALIMPSEST_TORCH}/../nvidia/*/lib)
foreach(dir IN LISTS _nvidia)
  target_link_options(palimpsest_torch INTERFACE -Wl,-rpath-link,${dir})
endforeach()
