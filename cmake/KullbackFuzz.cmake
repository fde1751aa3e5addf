# One libFuzzer program for each kullback/<room>/*_fuzz.cpp, under the address and undefined-behaviour sanitizers. Only the
# rooms without tensors, which read what others wrote: files, tokenizers, templates; and of the models' room what reads their
# configurations and adapters, which needs no tensors either.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "KULLBACK_FUZZ needs Clang, whose libFuzzer it uses: cmake --preset fuzz")
endif()

add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
add_link_options(-fsanitize=address,undefined)

set(sources "")
set(fuzzers "")
foreach(room IN ITEMS base text io)
  file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kullback/${room}/*.cpp")
  list(APPEND sources ${found})
endforeach()
file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kullback/lm/config*.cpp" "${PROJECT_SOURCE_DIR}/kullback/lm/adapter_*.cpp")
list(APPEND sources ${found})
list(APPEND fuzzers ${sources})
list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")

add_library(kullback_fuzzed STATIC ${sources})
target_include_directories(kullback_fuzzed PUBLIC "${PROJECT_SOURCE_DIR}")
target_link_libraries(kullback_fuzzed PUBLIC Threads::Threads nlohmann_json::nlohmann_json fmt::fmt spdlog::spdlog CLI11::CLI11
  tomlplusplus::tomlplusplus PkgConfig::PCRE2 PkgConfig::UTF8PROC)
foreach(fuzzer IN LISTS fuzzers)
  get_filename_component(name "${fuzzer}" NAME_WE)
  add_executable(${name} "${fuzzer}")
  target_link_libraries(${name} PRIVATE kullback_fuzzed)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endforeach()
