// Compiles the precompiled header that the tests with torch share.
