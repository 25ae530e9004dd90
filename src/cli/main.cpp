// palimpsest trains small models on recall and fact-update tasks, records and compares. Each verb has a file beside this one.
#include "cli/app.h"

int main(int argc, char** argv) { return palimpsest::cli::run_program(argc, argv); }
