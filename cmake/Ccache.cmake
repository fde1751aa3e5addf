# Compiles through ccache where it is installed, set up so that a hit is found again in another build folder or checkout.
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM)
  # Paths below the base folder are keyed relative to the build folder: a build folder inside the tree is then the same in
  # any checkout, and those side by side outside it are the same for one checkout.
  cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${PROJECT_BINARY_DIR}" NORMALIZE inside)
  if(inside)
    set(base_folder "${PROJECT_SOURCE_DIR}")
  else()
    set(base_folder "/")
  endif()
  set(settings
    CCACHE_BASEDIR=${base_folder}
    CCACHE_NOHASHDIR=1    # debug information may name another build folder
    CCACHE_INODECACHE=1   # hashing the precompiled header (500 MB) anew for each file takes longer than the hit
    # What a precompiled header makes ccache careful about, all of it harmless here.
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env ${settings} "${CCACHE_PROGRAM}")
endif()
