# Finds the libraries, and stops where the headers of one would be taken from another place than its library.
#
# Folders on PATH are no place to look: an active conda environment (or the like) would give those of the libraries that it happens to
# hold, and with their folder of headers also headers of all the others. Whoever wants its libraries names it: CMAKE_PREFIX_PATH, or
# PALIMPSEST_PREFIX, which scripts/setup.sh sets where the system lacks libraries.
if(PALIMPSEST_PREFIX)
  list(PREPEND CMAKE_PREFIX_PATH ${PALIMPSEST_PREFIX})
endif()
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(HDF5 REQUIRED COMPONENTS C HL)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
if(PALIMPSEST_TESTS)
  find_package(Catch2 REQUIRED)
endif()
unset(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH)

# Where each library was found: the folder above lib/cmake/NAME, share/cmake/NAME or include.
set(_packages fmt spdlog yaml-cpp HDF5 nlohmann_json CLI11 Catch2)
set(_headers fmt/format.h spdlog/spdlog.h yaml-cpp/yaml.h hdf5.h nlohmann/json.hpp CLI/CLI.hpp catch2/catch.hpp)
set(_folders /usr/local)  # the compiler looks there in any case, and where these two say
foreach(variable CPATH CPLUS_INCLUDE_PATH)
  string(REGEX REPLACE "/include(:|$)" ";" _named "$ENV{${variable}}")
  list(APPEND _folders ${_named})
endforeach()
foreach(package IN LISTS _packages)
  set(_place "${${package}_DIR}")
  if(package STREQUAL HDF5)
    list(GET HDF5_INCLUDE_DIRS 0 _place)
  endif()
  string(REGEX REPLACE "/(lib|lib64|share|include)(/.*)?$" "" _prefix_${package} "${_place}")
  list(APPEND _folders ${_prefix_${package}})
endforeach()
list(REMOVE_DUPLICATES _folders)
list(REMOVE_ITEM _folders /usr "")  # comes last, so it hides nothing
foreach(package header IN ZIP_LISTS _packages _headers)
  foreach(folder IN LISTS _folders)
    if(_prefix_${package} AND NOT folder STREQUAL _prefix_${package} AND EXISTS ${folder}/include/${header})
      message(FATAL_ERROR "The compiler would take the headers of ${package} from ${folder}/include, but its library is that of "
        "${_prefix_${package}}. Take all libraries from one place: leave ${folder} out (it comes from CMAKE_PREFIX_PATH, CPATH or an "
        "earlier configuration), or pass -DCMAKE_PREFIX_PATH=${folder} once it holds all of them; and remove ${CMAKE_BINARY_DIR} before "
        "configuring again.")
    endif()
  endforeach()
endforeach()
