// The entry point that every unit test executable shares.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
