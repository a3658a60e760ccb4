# The libtorch target, written by hand: find_package(Torch) wants a CUDA toolkit for a CUDA wheel and links more
# than is used. Nothing links libtorch_python.
if(NOT EXISTS "${WEFT_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no libtorch at WEFT_LIBTORCH=${WEFT_LIBTORCH}: run `make setup`, or point it to a torch "
                      "package (the directory that holds include/ and lib/libtorch_cpu.so)")
endif()
if(TARGET libtorch)  # find_package(weft) a second time
  return()
endif()
# A CUDA wheel's libtorch_cpu needs cudart and cupti, which lie beside torch in nvidia/*/lib.
file(GLOB WEFT_NVIDIA_LIBS "${WEFT_LIBTORCH}/../nvidia/*/lib")
# The OpenMP run-time that torch brings: a second one beside it would double the threads.
file(GLOB WEFT_GOMP "${WEFT_LIBTORCH}/lib/libgomp*.so*")
if(NOT WEFT_GOMP)  # a build that uses the system's
  set(WEFT_GOMP gomp)
endif()

add_library(libtorch INTERFACE)
target_include_directories(libtorch SYSTEM INTERFACE ${WEFT_LIBTORCH}/include
                                                     ${WEFT_LIBTORCH}/include/torch/csrc/api/include)
# torch brings the headers of its own fmt, which are found before the system's, but not the library.
target_compile_definitions(libtorch INTERFACE FMT_HEADER_ONLY)
target_compile_options(libtorch INTERFACE -fopenmp)  # at::parallel_for is inline: without it, silently serial
target_link_libraries(libtorch INTERFACE ${WEFT_LIBTORCH}/lib/libtorch_cpu.so ${WEFT_LIBTORCH}/lib/libc10.so
                                         ${WEFT_GOMP})
foreach(dir ${WEFT_LIBTORCH}/lib ${WEFT_NVIDIA_LIBS})
  target_link_options(libtorch INTERFACE -Wl,-rpath,${dir} -Wl,-rpath-link,${dir})
endforeach()
