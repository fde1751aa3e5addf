# Finds LibTorch without the torch package's own CMake files, which insist on a full CUDA toolkit. For the CPU only
# libtorch_cpu and libc10 are linked. Looked for in this order:
#   1. KULLBACK_TORCH: a torch package folder of any Python, or an unpacked LibTorch (holds include/ and lib/);
#   2. the torch of the active Python environment (VIRTUAL_ENV or CONDA_PREFIX);
#   3. the copy that tools/fetch_libtorch.py keeps in the cache folder.
# Defines the imported target LibTorch::LibTorch, LibTorch_VERSION and LibTorch_ROOT.

set(KULLBACK_TORCH "" CACHE PATH "A LibTorch >= 2.6 to use instead of the downloaded one (holds include/ and lib/)")

set(_candidates "")
if(KULLBACK_TORCH)
  list(APPEND _candidates "${KULLBACK_TORCH}" "${KULLBACK_TORCH}/torch")
else()
  foreach(_environment VIRTUAL_ENV CONDA_PREFIX)
    if(DEFINED ENV{${_environment}})
      file(GLOB _found "$ENV{${_environment}}/lib/python3*/site-packages/torch")
      list(APPEND _candidates ${_found})
    endif()
  endforeach()
  if(DEFINED ENV{KULLBACK_CACHE})
    set(_cache "$ENV{KULLBACK_CACHE}")
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(_cache "$ENV{XDG_CACHE_HOME}/kullback")
  else()
    set(_cache "$ENV{HOME}/.cache/kullback")
  endif()
  list(APPEND _candidates "${_cache}/libtorch-2.15.0-${CMAKE_HOST_SYSTEM_PROCESSOR}/torch")
endif()

set(LibTorch_ROOT "")
foreach(_candidate IN LISTS _candidates)
  if(EXISTS "${_candidate}/lib/libtorch_cpu.so" AND EXISTS "${_candidate}/include/ATen/ATen.h")
    set(LibTorch_ROOT "${_candidate}")
    break()
  endif()
endforeach()

if(LibTorch_ROOT AND EXISTS "${LibTorch_ROOT}/include/torch/headeronly/version.h")
  file(STRINGS "${LibTorch_ROOT}/include/torch/headeronly/version.h" _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
elseif(LibTorch_ROOT)
  file(STRINGS "${LibTorch_ROOT}/include/torch/csrc/api/include/torch/version.h" _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
endif()
if(LibTorch_ROOT)
  string(REGEX REPLACE "[^0-9]+" ";" _numbers "${_version}")
  list(FILTER _numbers INCLUDE REGEX "[0-9]")
  list(JOIN _numbers "." LibTorch_VERSION)
  if(LibTorch_VERSION VERSION_LESS 2.6)
    message(FATAL_ERROR "The LibTorch in ${LibTorch_ROOT} is version ${LibTorch_VERSION}; Kullback needs 2.6 or newer.")
  endif()
elseif(KULLBACK_TORCH)
  message(FATAL_ERROR "KULLBACK_TORCH names ${KULLBACK_TORCH}, which holds no lib/libtorch_cpu.so and include/ATen/ATen.h.")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/fetch_libtorch.py (make does), or name one with -DKULLBACK_TORCH=...")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_ROOT}/lib/libc10.so")
  add_library(LibTorch::LibTorch SHARED IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT}/lib/libtorch_cpu.so"
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_ROOT}/include;${LibTorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_ROOT}/include;${LibTorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
  # libtorch_cpu.so names CUDA's runtime and CUPTI, found by its own RPATH at run time; the linker need not resolve them.
  set_property(TARGET LibTorch::LibTorch APPEND PROPERTY INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()
