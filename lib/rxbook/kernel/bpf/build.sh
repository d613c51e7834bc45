#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Compile the BPF programs. The objects are kept in git, so that only who changes a program needs clang:
# Debian: apt install clang llvm libbpf-dev; Fedora: dnf install clang llvm libbpf-devel
# Usage: build.sh [FOLDER]   where the objects go (default: beside the sources)
set -eu
here=$(dirname "$0")
out=${1:-$here}
for source in "$here"/*.bpf.c; do
	object=$out/$(basename "$source" .c).o
	# the folder of asm/types.h differs between distributions
	clang -target bpf -O2 -g -Wall -Werror -I"/usr/include/$(uname -m)-linux-gnu" -c "$source" -o "$object"
	llvm-strip -g "$object"
done
