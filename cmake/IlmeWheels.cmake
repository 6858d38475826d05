# ilme_unpack_wheels(<variable> FOLDER name PACKAGES... [PATTERNS ...]): unpacks the pinned wheels of wheels.txt into
# ${XDG_CACHE_HOME:-~/.cache}/ilme/<name>, once for all build trees, and sets <variable> to that folder. Two configures
# at a time are safe: one waits for the other; the folder gets its name when it is complete.
set(ILME_WHEELS_LIST ${CMAKE_CURRENT_LIST_DIR}/wheels.txt)

function(ilme_cache_folder variable)
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(${variable} $ENV{XDG_CACHE_HOME}/ilme PARENT_SCOPE)
  else()
    set(${variable} $ENV{HOME}/.cache/ilme PARENT_SCOPE)
  endif()
endfunction()

function(ilme_unpack_wheels variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER" "PACKAGES;PATTERNS")
  ilme_cache_folder(cache)
  set(folder ${cache}/${arg_FOLDER})
  set(${variable} ${folder} PARENT_SCOPE)
  if(EXISTS ${folder})
    return()
  endif()
  file(MAKE_DIRECTORY ${cache})
  file(LOCK ${cache}/.lock GUARD FUNCTION TIMEOUT 3600)
  if(EXISTS ${folder})  # another configure was faster
    return()
  endif()

  set(work ${cache}/.unfinished-${arg_FOLDER})
  file(REMOVE_RECURSE ${work})
  file(MAKE_DIRECTORY ${work}/wheels ${work}/content)
  file(STRINGS ${ILME_WHEELS_LIST} lines REGEX "^[a-z]")
  set(hashes "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^[a-z-]+" package "${line}")
    if(package IN_LIST arg_PACKAGES)
      file(APPEND ${work}/requirements.txt "${line}\n")
      string(REGEX MATCHALL "sha256:[0-9a-f]+" found "${line}")
      list(APPEND hashes ${found})
    endif()
  endforeach()

  list(JOIN arg_PACKAGES ", " names)
  message(STATUS "ilme: downloading ${names} into ${folder} (once on this machine)")
  find_program(ILME_PYTHON python3 REQUIRED)
  set(platforms "")
  foreach(glibc 28 27 25 17)
    list(APPEND platforms --platform manylinux_2_${glibc}_${CMAKE_HOST_SYSTEM_PROCESSOR})
  endforeach()
  execute_process(
    COMMAND ${ILME_PYTHON} -m pip --disable-pip-version-check download --quiet --no-cache-dir --no-deps
            --only-binary=:all: ${platforms} --python-version 3.12 --require-hashes -r ${work}/requirements.txt
            -d ${work}/wheels
    RESULT_VARIABLE result ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "ilme: pip could not download ${names}:\n${errors}\n"
      "Or point ILME_TORCH_ROOT at the torch folder of an installed wheel.")
  endif()

  file(GLOB wheels ${work}/wheels/*.whl)
  foreach(wheel IN LISTS wheels)
    file(SHA256 ${wheel} hash)
    if(NOT "sha256:${hash}" IN_LIST hashes)
      message(FATAL_ERROR "ilme: ${wheel} has SHA-256 ${hash}, which ${ILME_WHEELS_LIST} does not list")
    endif()
    file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${work}/content PATTERNS ${arg_PATTERNS})
    file(REMOVE ${wheel})
  endforeach()
  file(RENAME ${work}/content ${folder})
  file(REMOVE_RECURSE ${work})
endfunction()
