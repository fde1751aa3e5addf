# Installs what was built, moves the tree, builds main.cpp against it through find_package(Kullback) and runs both programs.
#   cmake -DBUILD=<build folder> -DSOURCE=<this folder> -DWORK=<scratch folder> -DCOMPILER=<c++> -P check.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  string(STRIP "${output}" output)
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/first")
file(RENAME "${WORK}/first" "${WORK}/moved")

run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/build" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_COMPILER=${COMPILER}"
  "-DCMAKE_PREFIX_PATH=${WORK}/moved")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/uses_kullback")
if(NOT output STREQUAL "0.143841036")  # log(4/3) / 2
  message(FATAL_ERROR "The program built against the installed library printed ${output}, not 0.143841036.")
endif()

run("${WORK}/moved/bin/kullback" methods)
if(NOT output MATCHES "dpo")
  message(FATAL_ERROR "The installed program lists no dpo: ${output}")
endif()
foreach(page IN ITEMS "bash-completion/completions/kullback;complete" "zsh/site-functions/_kullback;#compdef" "man/man1/kullback.1;SH EXIT STATUS")
  list(GET page 0 file)
  list(GET page 1 part)
  file(READ "${WORK}/moved/share/${file}" contents)
  string(FIND "${contents}" "${part}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "share/${file} was installed without \"${part}\".")
  endif()
endforeach()
file(REMOVE_RECURSE "${WORK}")
message(STATUS "installed, found, built and run")
