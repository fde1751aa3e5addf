# A room is a folder of kullback/: its sources become an object library, its *_test.cpp files one test program. Files are
# found by globbing, so that a new method is a new file and no change here.

# What every target of ours is compiled with.
add_library(kullback_settings INTERFACE)
target_include_directories(kullback_settings INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(kullback_settings INTERFACE cxx_std_20)
target_link_libraries(kullback_settings INTERFACE Threads::Threads)

add_library(kullback_warnings INTERFACE)
target_compile_options(kullback_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-unknown-pragmas)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 raises both without cause on std::string and on nlohmann's iterators.
  target_compile_options(kullback_warnings INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
# Programs share the precompiled header with the rooms, which GCC allows only when they are compiled alike.
target_compile_options(kullback_warnings INTERFACE -fPIC)
if(KULLBACK_WERROR)
  target_compile_options(kullback_warnings INTERFACE -Werror)
endif()
# at::parallel_for runs on one thread in code compiled without OpenMP. GCC's runtime is the one LibTorch brings; Clang's
# would be a second one in the process.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_package(OpenMP REQUIRED)
  # By the flag, not by the path of GCC's library: at run time LibTorch's own copy is the one that is found first.
  set_target_properties(OpenMP::OpenMP_CXX PROPERTIES INTERFACE_LINK_LIBRARIES -fopenmp)
  target_link_libraries(kullback_warnings INTERFACE OpenMP::OpenMP_CXX)
endif()
if(KULLBACK_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# Torch's headers take 13 to 22 seconds a file; precompiled once, every file that uses tensors takes about 4.
file(WRITE "${PROJECT_BINARY_DIR}/precompiled.cpp" "")
add_library(kullback_precompiled OBJECT "${PROJECT_BINARY_DIR}/precompiled.cpp")
target_link_libraries(kullback_precompiled PRIVATE kullback_settings kullback_warnings LibTorch::LibTorch nlohmann_json::nlohmann_json fmt::fmt)
target_precompile_headers(kullback_precompiled PRIVATE <kullback/precompiled.h>)
if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(kullback_precompiled PRIVATE -fno-pch-timestamp)
endif()

set(KULLBACK_ROOMS "" CACHE INTERNAL "")

# kullback_room(NAME [TORCH] [ROOMS a b ...] [LIBRARIES x y ...])
function(kullback_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "ROOMS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kullback/${name}/*.cpp")
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)
    return()
  endif()

  set(target kullback_${name})
  add_library(${target} OBJECT ${sources})
  set(links kullback_settings ${ROOM_LIBRARIES})
  if(ROOM_TORCH)
    list(APPEND links LibTorch::LibTorch)
    target_precompile_headers(${target} REUSE_FROM kullback_precompiled)
  endif()
  foreach(below IN LISTS ROOM_ROOMS)
    if(TARGET kullback_${below})
      # Object libraries pass on their usage requirements, not their objects: those are linked once, where programs are made.
      get_target_property(below_links kullback_${below} INTERFACE_LINK_LIBRARIES)
      list(APPEND links ${below_links})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES links)
  target_link_libraries(${target} PUBLIC ${links} PRIVATE kullback_warnings)
  set_property(CACHE KULLBACK_ROOMS APPEND PROPERTY VALUE ${name})

  if(tests AND BUILD_TESTING)
    find_package(GTest REQUIRED)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${target} ${links} kullback_warnings GTest::gtest GTest::gmock GTest::gtest_main)
    foreach(below IN LISTS ROOM_ROOMS)
      if(TARGET kullback_${below})
        target_sources(${name}_test PRIVATE $<TARGET_OBJECTS:kullback_${below}>)
      endif()
    endforeach()
    target_compile_definitions(${name}_test PRIVATE KULLBACK_FIXTURES="${PROJECT_SOURCE_DIR}/fixtures" KULLBACK_SOURCE="${PROJECT_SOURCE_DIR}")
    if(ROOM_TORCH)
      target_precompile_headers(${name}_test REUSE_FROM kullback_precompiled)
    endif()
    include(GoogleTest)
    # Tests named Slow* need the real model or minutes; everything else is "fast" and also runs under the sanitizers.
    # The fast ones run side by side, a thread each; the slow ones get the machine to themselves.
    gtest_discover_tests(${name}_test TEST_FILTER "-*Slow*" PROPERTIES LABELS "fast" ENVIRONMENT "OMP_NUM_THREADS=1" TIMEOUT 300
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
    gtest_discover_tests(${name}_test TEST_FILTER "*Slow*" PROPERTIES LABELS "slow" RUN_SERIAL TRUE TIMEOUT 1800
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

# The library that users link, and that the program and the benches use: all rooms in one shared object, so that methods
# that register themselves are never dropped by the linker.
function(kullback_library)
  add_library(kullback SHARED)
  add_library(Kullback::kullback ALIAS kullback)
  foreach(room IN LISTS KULLBACK_ROOMS)
    target_sources(kullback PRIVATE $<TARGET_OBJECTS:kullback_${room}>)
    get_target_property(links kullback_${room} INTERFACE_LINK_LIBRARIES)
    target_link_libraries(kullback PRIVATE ${links})
  endforeach()
  if(TARGET OpenMP::OpenMP_CXX)
    target_link_libraries(kullback PRIVATE OpenMP::OpenMP_CXX)
  endif()
  target_link_libraries(kullback PUBLIC kullback_settings LibTorch::LibTorch nlohmann_json::nlohmann_json fmt::fmt)
  set_target_properties(kullback PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    INSTALL_RPATH "$ORIGIN;${LibTorch_ROOT}/lib")
endfunction()

function(kullback_program)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cli/*.cpp")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)
    return()
  endif()
  add_executable(kullback_cli ${sources})
  set_target_properties(kullback_cli PROPERTIES OUTPUT_NAME kullback
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${LibTorch_ROOT}/lib")
  target_link_libraries(kullback_cli PRIVATE kullback kullback_warnings CLI11::CLI11 spdlog::spdlog tomlplusplus::tomlplusplus)
  target_compile_definitions(kullback_cli PRIVATE KULLBACK_VERSION="${PROJECT_VERSION}")
  target_precompile_headers(kullback_cli REUSE_FROM kullback_precompiled)
  # The tensors of a training step, tens of MB each and of another size in every batch, leave glibc's heap in pieces: a step then
  # holds up to twice the memory that its tensors take. jemalloc gives back what it does not use. (Sanitizers have their own.)
  find_library(KULLBACK_JEMALLOC jemalloc)
  if(KULLBACK_JEMALLOC AND NOT KULLBACK_SANITIZE)
    target_link_options(kullback_cli PRIVATE LINKER:--push-state,--no-as-needed "${KULLBACK_JEMALLOC}" LINKER:--pop-state)
  endif()

  file(GLOB tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cli/*_test.cpp")
  if(tests AND BUILD_TESTING)
    add_executable(cli_test ${tests})
    target_link_libraries(cli_test PRIVATE kullback kullback_warnings GTest::gtest GTest::gmock GTest::gtest_main)
    target_precompile_headers(cli_test REUSE_FROM kullback_precompiled)
    target_compile_definitions(cli_test PRIVATE KULLBACK_PROGRAM="$<TARGET_FILE:kullback_cli>"
      KULLBACK_FIXTURES="${PROJECT_SOURCE_DIR}/fixtures" KULLBACK_SOURCE="${PROJECT_SOURCE_DIR}")
    add_dependencies(cli_test kullback_cli)
    include(GoogleTest)
    gtest_discover_tests(cli_test TEST_FILTER "-*Slow*" PROPERTIES LABELS "cli" ENVIRONMENT "OMP_NUM_THREADS=1" TIMEOUT 300
      DISCOVERY_MODE PRE_TEST)
    gtest_discover_tests(cli_test TEST_FILTER "*Slow*" PROPERTIES LABELS "slow" RUN_SERIAL TRUE TIMEOUT 1800 DISCOVERY_MODE PRE_TEST)
  endif()
endfunction()

# examples/NAME.cpp becomes build/examples/NAME: a user's own program against the library. Each is run as a test.
function(kullback_examples)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    add_executable(example_${name} "${source}")
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
    target_link_libraries(example_${name} PRIVATE kullback kullback_warnings)
    target_compile_options(example_${name} PRIVATE -Wno-missing-field-initializers)  # a user's own flags
    target_precompile_headers(example_${name} REUSE_FROM kullback_precompiled)
    if(BUILD_TESTING)
      add_test(NAME Example.${name} COMMAND example_${name})
      set_tests_properties(Example.${name} PROPERTIES LABELS "cli" TIMEOUT 300 ENVIRONMENT "OMP_NUM_THREADS=1")
    endif()
  endforeach()
endfunction()

# bench/NAME.cpp becomes build/bench/NAME.
function(kullback_benches)
  find_package(benchmark)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.cpp")
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    add_executable(bench_${name} "${source}")
    set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
    target_link_libraries(bench_${name} PRIVATE kullback kullback_warnings benchmark::benchmark)
    target_precompile_headers(bench_${name} REUSE_FROM kullback_precompiled)
  endforeach()
endfunction()

function(kullback_install)
  include(CMakePackageConfigHelpers)
  install(TARGETS kullback kullback_settings EXPORT KullbackTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(TARGET kullback_cli)
    install(TARGETS kullback_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    # What shells and man know of the program, written by the program itself.
    install(CODE "
      function(kullback_writes file)
        set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/\${file}\")
        message(STATUS \"Installing: \${file}\")
        get_filename_component(folder \"\${file}\" DIRECTORY)
        file(MAKE_DIRECTORY \"\${folder}\")
        execute_process(COMMAND \"$<TARGET_FILE:kullback_cli>\" \${ARGN} OUTPUT_FILE \"\${file}\" COMMAND_ERROR_IS_FATAL ANY)
      endfunction()
      kullback_writes(bash-completion/completions/kullback completion bash)
      kullback_writes(zsh/site-functions/_kullback completion zsh)
      kullback_writes(man/man1/kullback.1 man)")
  endif()
  install(DIRECTORY kullback/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kullback FILES_MATCHING PATTERN "*.h" PATTERN "*_test*" EXCLUDE
    PATTERN "*-inl.h" EXCLUDE PATTERN "precompiled.h" EXCLUDE)
  set(destination ${CMAKE_INSTALL_LIBDIR}/cmake/Kullback)
  install(EXPORT KullbackTargets NAMESPACE Kullback:: DESTINATION ${destination})
  configure_package_config_file(cmake/KullbackConfig.cmake.in "${PROJECT_BINARY_DIR}/KullbackConfig.cmake" INSTALL_DESTINATION ${destination})
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/KullbackConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/KullbackConfig.cmake" "${PROJECT_BINARY_DIR}/KullbackConfigVersion.cmake"
    cmake/FindLibTorch.cmake DESTINATION ${destination})
endfunction()

# Tests that are not GoogleTest's: of the installed tree, and of the scripts in tools/.
function(kullback_other_tests)
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(TARGET kullback_cli)
    add_test(NAME Slow.Install COMMAND "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}" "-DSOURCE=${PROJECT_SOURCE_DIR}/tests/install"
      "-DWORK=${PROJECT_BINARY_DIR}/install-test" "-DCOMPILER=${CMAKE_CXX_COMPILER}" -P "${PROJECT_SOURCE_DIR}/tests/install/check.cmake")
    set_tests_properties(Slow.Install PROPERTIES LABELS "slow" TIMEOUT 600)
  endif()
  find_program(KULLBACK_PYTHON NAMES python3 python)
  if(KULLBACK_PYTHON)
    add_test(NAME Tools.FetchLibtorch COMMAND "${KULLBACK_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/tools/fetch_libtorch_test.py")
    set_tests_properties(Tools.FetchLibtorch PROPERTIES LABELS "tools" SKIP_RETURN_CODE 77 TIMEOUT 300)
  endif()
endfunction()
