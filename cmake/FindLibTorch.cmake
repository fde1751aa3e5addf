# Finds LibTorch without the torch package's own CMake files, which insist on a full CUDA toolkit. For the CPU only
# libtorch_cpu and libc10 are linked. Looked for in this order:
#   1. KULLBACK_TORCH: a torch package folder of any Python, or an unpacked LibTorch (holds include/ and lib/);
#   2. the one this build folder was configured with before, so that a later shell's Python does not change it;
#   3. the torch of the active Python;
#   4. the copy that tools/fetch_libtorch.py keeps in the cache folder, fetched now unless KULLBACK_FETCH is off.
# Defines the imported target LibTorch::LibTorch, LibTorch_VERSION and LibTorch_ROOT.

if(NOT DEFINED KULLBACK_TORCH OR DEFINED CACHE{KULLBACK_TORCH})  # KullbackConfig.cmake sets it to the one it was built with
  set(KULLBACK_TORCH "" CACHE PATH "A LibTorch >= 2.6 to use instead of the downloaded one (holds include/ and lib/)")
endif()
option(KULLBACK_FETCH "Download LibTorch into the cache folder when none is found" ON)
set(_oldest 2.6)

# Sets `result` to the version of the LibTorch in `folder`, or to why it cannot be used.
function(_libtorch_version folder result)
  set(${result} "holds no lib/libtorch_cpu.so and include/ATen/ATen.h" PARENT_SCOPE)
  if(NOT EXISTS "${folder}/lib/libtorch_cpu.so" OR NOT EXISTS "${folder}/include/ATen/ATen.h")
    return()
  endif()
  set(header "${folder}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${header}")  # before 2.8
    set(header "${folder}/include/torch/csrc/api/include/torch/version.h")
  endif()
  file(STRINGS "${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  list(TRANSFORM lines REPLACE "[^0-9]+" "")
  list(JOIN lines "." version)
  if(version VERSION_LESS ${_oldest})
    set(${result} "is version ${version}, and Kullback needs ${_oldest} or newer" PARENT_SCOPE)
    return()
  endif()
  set(config "${folder}/share/cmake/Torch/TorchConfig.cmake")
  if(EXISTS "${config}")
    file(STRINGS "${config}" old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(old_abi)
      set(${result} "was built with the C++ ABI of before 2011" PARENT_SCOPE)
      return()
    endif()
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Appends the folder of the active Python's torch, without importing it.
function(_libtorch_of_active_python result)
  find_program(KULLBACK_PYTHON NAMES python3 python)
  mark_as_advanced(KULLBACK_PYTHON)
  execute_process(COMMAND "${KULLBACK_PYTHON}" -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
    OUTPUT_VARIABLE folder ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND folder)
    set(${result} ${${result}} "${folder}" PARENT_SCOPE)
  endif()
endfunction()

function(_libtorch_cache_folder result)
  if(NOT "$ENV{KULLBACK_CACHE}" STREQUAL "")
    set(cache "$ENV{KULLBACK_CACHE}")
  elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(cache "$ENV{XDG_CACHE_HOME}/kullback")
  else()
    set(cache "$ENV{HOME}/.cache/kullback")
  endif()
  set(${result} "${cache}/libtorch-2.15.0-${CMAKE_HOST_SYSTEM_PROCESSOR}/torch" PARENT_SCOPE)
endfunction()

# Sets LibTorch_ROOT and LibTorch_VERSION to the first of the folders that can be used.
macro(_libtorch_choose)
  foreach(_folder ${ARGN})
    _libtorch_version("${_folder}" _version)
    if(_version MATCHES "^[0-9.]+$")
      set(LibTorch_ROOT "${_folder}")
      set(LibTorch_VERSION "${_version}")
      break()
    elseif(EXISTS "${_folder}")
      message(STATUS "LibTorch: not the one in ${_folder}: it ${_version}")
    endif()
  endforeach()
endmacro()

set(LibTorch_ROOT "")
if(KULLBACK_TORCH)
  _libtorch_choose("${KULLBACK_TORCH}" "${KULLBACK_TORCH}/torch")
  if(NOT LibTorch_ROOT)
    _libtorch_version("${KULLBACK_TORCH}" _version)
    message(FATAL_ERROR "KULLBACK_TORCH names ${KULLBACK_TORCH}, which ${_version}.")
  endif()
else()
  set(_candidates "")
  if(DEFINED CACHE{KULLBACK_TORCH_BEFORE} AND EXISTS "${KULLBACK_TORCH_BEFORE}")
    list(APPEND _candidates "${KULLBACK_TORCH_BEFORE}")
  endif()
  _libtorch_of_active_python(_candidates)
  _libtorch_cache_folder(_cached)
  _libtorch_choose(${_candidates} "${_cached}")
  set(_fetch "${CMAKE_CURRENT_LIST_DIR}/../tools/fetch_libtorch.py")
  if(NOT LibTorch_ROOT AND KULLBACK_FETCH AND EXISTS "${_fetch}")
    if(NOT KULLBACK_PYTHON)
      message(FATAL_ERROR "There is no LibTorch yet, and no Python 3 to fetch it with: install python3 and python3-pip, or name one with -DKULLBACK_TORCH=FOLDER.")
    endif()
    execute_process(COMMAND "${KULLBACK_PYTHON}" "${_fetch}" RESULT_VARIABLE _status OUTPUT_QUIET)
    if(NOT _status EQUAL 0)
      message(FATAL_ERROR "There is no LibTorch yet: see the sentence above, or name one with -DKULLBACK_TORCH=FOLDER.")
    endif()
    _libtorch_choose("${_cached}")
  endif()
endif()
set(KULLBACK_TORCH_BEFORE "${LibTorch_ROOT}" CACHE INTERNAL "The LibTorch this build folder was configured with")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/fetch_libtorch.py, or name one with -DKULLBACK_TORCH=FOLDER")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  # The wheel carries the headers of another fmt than the installed library's. The installed ones are put before them, alone
  # in a folder, since /usr/include itself cannot be moved to the front.
  set(_includes "${LibTorch_ROOT}/include" "${LibTorch_ROOT}/include/torch/csrc/api/include")
  find_path(LibTorch_FMT_HEADERS fmt/format.h DOC "Headers of the fmt library that is linked")
  if(LibTorch_FMT_HEADERS AND EXISTS "${LibTorch_ROOT}/include/fmt")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/headers_before_torch")
    file(CREATE_LINK "${LibTorch_FMT_HEADERS}/fmt" "${CMAKE_BINARY_DIR}/headers_before_torch/fmt" SYMBOLIC)
    list(PREPEND _includes "${CMAKE_BINARY_DIR}/headers_before_torch")
  endif()
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_ROOT}/lib/libc10.so")
  add_library(LibTorch::LibTorch SHARED IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT}/lib/libtorch_cpu.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_includes}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_includes}"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
  # libtorch_cpu.so names CUDA's runtime and CUPTI, found by its own RPATH at run time; the linker need not resolve them.
  set_property(TARGET LibTorch::LibTorch APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()
