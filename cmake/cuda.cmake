# GPU kernels: gpu/kernels/*.cu become fatbins that are embedded in the binary. No CUDA header, no
# CUDA library: without nvcc, or with COPPELIUS_CUDA=OFF, the build is CPU only and says so.
# Debug builds take one architecture, to be quick; images.records knows them all.
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(cuda_architectures "90a")
  set(cuda_ptx "")
  set(model_images OFF)
else()
  set(model_images ON)
  set(cuda_architectures "75;80;86;89;90a;100;120")
  set(cuda_ptx "80")
endif()
set(COPPELIUS_CUDA_ARCHITECTURES "${cuda_architectures}" CACHE STRING
    "Architectures that get machine code")
set(COPPELIUS_CUDA_PTX "${cuda_ptx}" CACHE STRING
    "Architecture of the PTX for GPUs yet to come; empty: none")
option(COPPELIUS_MODEL_IMAGES "The language model's device images inside the program" ${model_images})

# The one place of nvcc's flags. NUMERICS is to the bit: no contraction, no fast math.
set(NVCC_FLAGS -std=c++17 -O3 --fmad=false --prec-div=true --prec-sqrt=true --ftz=false
    -Xptxas -v -diag-suppress 128 -I "${PROJECT_SOURCE_DIR}")
foreach(architecture ${COPPELIUS_CUDA_ARCHITECTURES})
  list(APPEND NVCC_FLAGS -gencode "arch=compute_${architecture},code=sm_${architecture}")
endforeach()
if(COPPELIUS_CUDA_PTX)
  list(APPEND NVCC_FLAGS -gencode "arch=compute_${COPPELIUS_CUDA_PTX},code=compute_${COPPELIUS_CUDA_PTX}")
endif()

set(COPPELIUS_HAVE_CUDA OFF)
if(NOT COPPELIUS_CUDA STREQUAL "OFF")
  find_program(NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  if(NVCC)
    set(COPPELIUS_HAVE_CUDA ON)
    message(STATUS "GPU kernels: ${NVCC} for sm_${COPPELIUS_CUDA_ARCHITECTURES}")
    if(NOT COPPELIUS_MODEL_IMAGES)
      message(STATUS "GPU kernels: without the language model's (COPPELIUS_MODEL_IMAGES=OFF)")
    endif()
  elseif(COPPELIUS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "COPPELIUS_CUDA=ON, but nvcc was not found: install CUDA 13.0's nvcc, or give -DCOPPELIUS_CUDA=OFF")
  else()
    message(STATUS "GPU kernels: none, nvcc was not found: this build computes on the CPU only")
  endif()
else()
  message(STATUS "GPU kernels: off (COPPELIUS_CUDA=OFF): this build computes on the CPU only")
endif()

# gpu_kernels(target forward_dense …): fatbins, their embedding in cuda_blobs.c, and the target
# gpu_records, which makes images.records anew and shows what differs.
function(gpu_kernels target)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/kernels")
  file(MAKE_DIRECTORY "${out}")
  file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.h"
       "${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cuh" "${PROJECT_SOURCE_DIR}/numerics/*.h")
  set(fatbins "")
  set(reports "")
  foreach(kernel ${ARGN})
    add_custom_command(
      OUTPUT "${out}/${kernel}.fatbin" "${out}/${kernel}.report"
      COMMAND "${PROJECT_SOURCE_DIR}/cmake/nvcc.sh" "${out}/${kernel}.report" "${NVCC}" ${NVCC_FLAGS}
              --fatbin -o "${out}/${kernel}.fatbin" "${CMAKE_CURRENT_SOURCE_DIR}/kernels/${kernel}.cu"
      DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/kernels/${kernel}.cu" ${headers}
              "${PROJECT_SOURCE_DIR}/cmake/nvcc.sh"
      COMMENT "GPU kernel ${kernel}" VERBATIM)
    list(APPEND fatbins "${out}/${kernel}.fatbin")
    list(APPEND reports "${out}/${kernel}.report")
  endforeach()
  set_source_files_properties(cuda_blobs.c PROPERTIES
    OBJECT_DEPENDS "${fatbins};${CMAKE_CURRENT_SOURCE_DIR}/images.records"
    COMPILE_DEFINITIONS
      "COPPELIUS_KERNELS_DIR=\"${out}\";COPPELIUS_RECORDS=\"${CMAKE_CURRENT_SOURCE_DIR}/images.records\"")
  add_custom_target(gpu_records
    COMMAND "${PROJECT_SOURCE_DIR}/cmake/records.sh" "${CMAKE_CURRENT_SOURCE_DIR}/images.records"
            "${out}/images.records" ${reports}
    DEPENDS ${reports} "${PROJECT_SOURCE_DIR}/cmake/records.sh" VERBATIM)
  add_test(NAME "gpu/records"
    COMMAND "${PROJECT_SOURCE_DIR}/cmake/records.sh" "${CMAKE_CURRENT_SOURCE_DIR}/images.records"
            "${out}/images.records" ${reports})
  add_test(NAME "gpu/records_differ"
    COMMAND "${PROJECT_SOURCE_DIR}/cmake/records_test.sh" "${CMAKE_CURRENT_SOURCE_DIR}/images.records"
            "${out}/images.records" ${reports})
  set_tests_properties("gpu/records" "gpu/records_differ" PROPERTIES LABELS unit TIMEOUT 60)
endfunction()
