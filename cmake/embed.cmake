# Pages and data under src/ become C arrays of the library: src/record/page/board.html is `ash_embed_board_html`, and
# src/infra/catalog/catalog.yaml is `ash_embed_catalog_yaml` (NUL-terminated; its length is `..._bytes`).
# Included by CMakeLists.txt it sets the rules up; run as a script (-DINPUT -DOUTPUT -DNAME) it converts one file.
if(DEFINED INPUT)
  file(READ "${INPUT}" bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR count "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE "${OUTPUT}" "/* Made from a file under src/. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0x00};\nextern const unsigned long ${NAME}_bytes;\nconst unsigned long ${NAME}_bytes = ${count};\n")
  return()
endif()
file(GLOB_RECURSE pages CONFIGURE_DEPENDS src/*.html src/*.css src/*.js src/*.yaml src/*.gz)
foreach(page ${pages})
  get_filename_component(stem ${page} NAME)
  string(REPLACE "." "_" stem ${stem})
  set(output ${CMAKE_BINARY_DIR}/generated/${stem}.c)
  add_custom_command(OUTPUT ${output} DEPENDS ${page} cmake/embed.cmake VERBATIM
    COMMAND ${CMAKE_COMMAND} -DINPUT=${page} -DOUTPUT=${output} -DNAME=ash_embed_${stem}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake)
  target_sources(ashlar_lib PRIVATE ${output})
endforeach()
