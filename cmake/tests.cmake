# unit_tests(peer): every tests/unit/peer/test_*.c becomes the test unit/peer/<file>; nothing is
# registered by hand. Extra libraries follow the name. A test's own deadline, four seconds by default,
# is for a machine that does nothing else; ctest's bounds the whole.
add_custom_target(check_units)   # the programs of all unit tests, for builds that need no more
add_custom_target(check_replays) # of all corpora
add_custom_target(check_fuzzers)

# ./check gives ctest two slots (PROCESSORS) for each processor: what computes takes two, what waits most of its time one.
# The longest begin first (COST). Of a file that waits long each of these cases, tagged with its name, is a test by itself.
set(waiting_units peer/test_exchange_faults peer/test_exchange daemon/test_http peer/test_probe peer/test_fetch
    daemon/test_api_limits daemon/test_notify)
set(cases_of_peer/test_exchange_faults threads pumps)

function(add_unit name target file choice)
  add_test(NAME ${name} COMMAND ${target})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 300
    SKIP_RETURN_CODE 77 ENVIRONMENT "${choice};COPPELIUS_SHARED=${PROJECT_SOURCE_DIR}/../shared;COPPELIUS_TESTS=${PROJECT_SOURCE_DIR}/tests;CK_DEFAULT_TIMEOUT=120;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lib/tsan.supp")
  if(file IN_LIST waiting_units)
    set_tests_properties(${name} PROPERTIES COST 950)
  else()
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

function(unit_tests room)
  add_custom_target(check_units_${room})
  add_dependencies(check_units check_units_${room})
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/unit/${room}/test_*.c")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    set(target "unit_${room}_${stem}")
    add_executable(${target} ${file} "${PROJECT_SOURCE_DIR}/tests/lib/unit_main.c")
    target_link_libraries(${target} PRIVATE ${room} ${ARGN} PkgConfig::check house_warnings)
    add_dependencies(check_units_${room} ${target})
    string(JOIN " " cases ${cases_of_${room}/${stem}})
    add_unit("unit/${room}/${stem}" ${target} "${room}/${stem}" "CK_EXCLUDE_TAGS=${cases}")
    foreach(case ${cases_of_${room}/${stem}})
      add_unit("unit/${room}/${stem}/${case}" ${target} "${room}/${stem}" "CK_RUN_CASE=${case}")
    endforeach()
  endforeach()
endfunction()

# fuzz_target(frame proto): tests/fuzz/fuzz_frame.c with the room's library. Where libFuzzer is on
# it is a fuzzer; everywhere its corpus tests/fuzz/corpus/frame is replayed as a test.
function(fuzz_target name)
  add_executable(fuzz_${name}_replay "${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_${name}.c"
                 "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.c")
  target_link_libraries(fuzz_${name}_replay PRIVATE ${ARGN} house_warnings)
  add_dependencies(check_replays fuzz_${name}_replay)
  add_test(NAME "fuzz/${name}" COMMAND fuzz_${name}_replay
           "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  set_tests_properties("fuzz/${name}" PROPERTIES LABELS fuzz TIMEOUT 120)
  if(COPPELIUS_FUZZ)
    add_executable(fuzz_${name} "${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_${name}.c")
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(fuzz_${name} PRIVATE ${ARGN} house_warnings)
    add_dependencies(check_fuzzers fuzz_${name})
  endif()
endfunction()
