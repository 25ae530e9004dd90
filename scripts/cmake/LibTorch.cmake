# The target palimpsest::torch: LibTorch's headers and libraries, linked directly. TorchConfig.cmake is not run: for a CUDA build of
# LibTorch it insists on a CUDA toolkit. The libraries find nvidia/*/lib by their own rpath; the linker needs -rpath-link.
if(NOT PALIMPSEST_TORCH)  # as find_package(Torch) would look for it
  find_path(Torch_DIR TorchConfig.cmake PATH_SUFFIXES share/cmake/Torch)
  if(Torch_DIR)
    cmake_path(SET prefix NORMALIZE ${Torch_DIR}/../../..)
    set(PALIMPSEST_TORCH ${prefix} CACHE PATH "" FORCE)
  endif()
endif()
if(NOT PALIMPSEST_TORCH)
  message(FATAL_ERROR "No LibTorch: run scripts/setup.sh (it finds or installs one), or pass -DPALIMPSEST_TORCH=DIR, the folder that "
    "holds include/ and lib/")
endif()

foreach(name PALIMPSEST_TORCH CMAKE_SOURCE_DIR)
  if("${${name}}" MATCHES "[][,;\"\\]")
    message(FATAL_ERROR "${name}=${${name}}: a compiler's options and CMake's lists are taken apart at , ; [ ] \" \\. Give it "
      "another name, or make a link to it under one (ln -s)")
  endif()
endforeach()

set(_version_file ${PALIMPSEST_TORCH}/include/torch/headeronly/version.h)
if(NOT EXISTS ${_version_file})  # before 2.9
  set(_version_file ${PALIMPSEST_TORCH}/include/torch/csrc/api/include/torch/version.h)
endif()
foreach(file ${_version_file} ${PALIMPSEST_TORCH}/include/ATen/core/Tensor.h ${PALIMPSEST_TORCH}/lib/libtorch_cpu.so
    ${PALIMPSEST_TORCH}/lib/libc10.so)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "PALIMPSEST_TORCH=${PALIMPSEST_TORCH} is no LibTorch: ${file} is missing")
  endif()
endforeach()
file(READ ${_version_file} _version)
string(REGEX MATCH "VERSION_MAJOR ([0-9]+).*VERSION_MINOR ([0-9]+).*VERSION_PATCH ([0-9]+)" _ "${_version}")
set(PALIMPSEST_TORCH_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
if(PALIMPSEST_TORCH_VERSION VERSION_LESS 2.5)
  message(FATAL_ERROR "LibTorch ${PALIMPSEST_TORCH_VERSION} in ${PALIMPSEST_TORCH} is too old: 2.5 or later is needed")
endif()
# Strings of the old ABI would show up much later, as undefined references to yaml-cpp.
file(STRINGS ${PALIMPSEST_TORCH}/lib/libc10.so _new_abi REGEX "^_ZN.*St7__cxx11" LIMIT_COUNT 1)
if(NOT _new_abi)
  message(FATAL_ERROR "LibTorch in ${PALIMPSEST_TORCH} is built with the old C++ string ABI (_GLIBCXX_USE_CXX11_ABI=0), which does not "
    "link with this system's libraries: use one of the \"cxx11 ABI\", or a torch wheel of 2.6 or later")
endif()
message(STATUS "LibTorch: ${PALIMPSEST_TORCH_VERSION} in ${PALIMPSEST_TORCH}")

add_library(palimpsest_torch INTERFACE)
add_library(palimpsest::torch ALIAS palimpsest_torch)
# After the system's own folders: LibTorch ships headers of fmt (another version than the library we link) and others.
target_compile_options(palimpsest_torch INTERFACE
  "SHELL:-idirafter \"${PALIMPSEST_TORCH}/include\"" "SHELL:-idirafter \"${PALIMPSEST_TORCH}/include/torch/csrc/api/include\"")
target_link_libraries(palimpsest_torch INTERFACE ${PALIMPSEST_TORCH}/lib/libtorch_cpu.so ${PALIMPSEST_TORCH}/lib/libc10.so)
target_link_options(palimpsest_torch INTERFACE -Wl,-rpath,${PALIMPSEST_TORCH}/lib)
file(GLOB PALIMPSEST_NVIDIA_LIBS ${PALIMPSEST_TORCH}/../nvidia/*/lib)
foreach(dir IN LISTS PALIMPSEST_NVIDIA_LIBS)
  target_link_options(palimpsest_torch INTERFACE -Wl,-rpath-link,${dir})
endforeach()

# g++ 13 and later see an overflow in std::vector<bool>::reserve once torch's Function::apply is inlined into our files. There is none.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(palimpsest_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
endif()
