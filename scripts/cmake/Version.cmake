# Run at every build: cmake -DSOURCE=DIR -DBINARY=DIR -DGENERATED=DIR -P Version.cmake. Writes what the program is built from: the commit
# and the dirty flag (version_info.h), and the differences of the sources from that commit (code_changes.h). A source tree without git
# (an archive) is "unknown". The headers are touched only when their text changes.
cmake_minimum_required(VERSION 3.25)

# A copied build folder compiles the sources that it was made for, wherever they lie. Ninja starts in the copy, and the shell that it
# starts goes from there to the original.
if(DEFINED ENV{OLDPWD} AND EXISTS $ENV{OLDPWD}/CMakeCache.txt)
  file(REAL_PATH $ENV{OLDPWD} here)
  file(REAL_PATH ${BINARY} made)
  if(NOT here STREQUAL made)
    message(FATAL_ERROR "${here} is a copy of ${made} and would compile the sources in ${SOURCE}: remove it and build anew")
  endif()
endif()

# Of the repository in SOURCE, whatever a hook of another one has set, and also where another user owns it (a container, a mounted
# folder): git refuses that to spare us the repository's settings, but building runs the repository's code anyway.
foreach(name GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_EXTERNAL_DIFF)
  unset(ENV{${name}})
endforeach()
set(ENV{GIT_OPTIONAL_LOCKS} 0)  # looking must not block somebody else's commit
function(git output)
  cmake_parse_arguments(ARG "" "" "CODES;COMMAND" ${ARGN})
  execute_process(COMMAND git -c safe.directory=* -c core.fsmonitor=false -c core.quotePath=false ${ARG_COMMAND} WORKING_DIRECTORY ${SOURCE}
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE error)
  if(NOT code IN_LIST ARG_CODES)
    list(JOIN ARG_COMMAND " " command)
    string(STRIP "${error}" error)
    message(WARNING "The commit or the changes of ${SOURCE} will be missing in the records of runs, since git ${command} failed: "
      "${code} ${error}")
    set(text "")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

set(commit unknown)
set(changes "")
if(EXISTS ${SOURCE}/.git)
  git(head CODES 0 COMMAND rev-parse HEAD)
  string(STRIP "${head}" head)
  if(head)
    set(commit ${head})
    set(difference diff --no-color --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/)
    git(changes CODES 0 COMMAND ${difference} HEAD -- src tasks scripts/cmake CMakeLists.txt CMakePresets.json)
    # Files that git does not know are compiled all the same, ignored ones too. --no-index answers 1 where there is a difference.
    git(untracked CODES 0 COMMAND ls-files --others -- src/*.cpp src/*.h src/*.cu src/*.cuh tasks/*.cpp tasks/*.h)
    string(REGEX MATCHALL "[^\n]+" untracked "${untracked}")
    foreach(file IN LISTS untracked)
      git(added CODES 1 COMMAND ${difference} --no-index -- /dev/null ${file})
      string(APPEND changes "${added}")
    endforeach()
  endif()
endif()

set(dirty false)
if(NOT changes STREQUAL "")
  set(dirty true)
endif()
set(longest 1048576)
string(LENGTH "${changes}" length)
if(length GREATER longest)
  string(SUBSTRING "${changes}" 0 ${longest} changes)
  string(APPEND changes "\n(cut here: ${longest} of ${length} bytes)\n")
endif()
string(REPLACE [[\]] [[\\]] changes "${changes}")
string(REPLACE [["]] [[\"]] changes "${changes}")
string(REPLACE "\r" [[\r]] changes "${changes}")
string(REPLACE "\n" "\\n\"\n\"" changes "${changes}")
foreach(name version_info code_changes)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.h.in ${GENERATED}/${name}.h @ONLY)
endforeach()
