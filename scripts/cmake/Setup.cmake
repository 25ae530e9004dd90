# Where LibTorch, Python and the libraries are, for those who call cmake themselves: an option goes before a variable of the environment,
# and that before what scripts/setup.sh found. build/setup.env is text for the shell, where an apostrophe in a value is written '\''.
set(_settings "")
if(EXISTS ${CMAKE_SOURCE_DIR}/build/setup.env)
  file(READ ${CMAKE_SOURCE_DIR}/build/setup.env _settings)
endif()
foreach(name PALIMPSEST_TORCH PALIMPSEST_PYTHON PALIMPSEST_PREFIX)
  if(NOT ${name} AND DEFINED ENV{${name}})
    set(${name} "$ENV{${name}}" CACHE PATH "" FORCE)
  elseif(NOT ${name} AND _settings MATCHES "${name}='(([^']|'\\\\'')*)'")
    string(REPLACE "'\\''" "'" _value "${CMAKE_MATCH_1}")
    set(${name} "${_value}" CACHE PATH "" FORCE)
  endif()
endforeach()
