// Compiles the precompiled header that the programs with torch share.
