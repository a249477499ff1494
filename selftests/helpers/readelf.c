// SPDX-License-Identifier: GPL-2.0
/*
 * As much of readelf as the kernel's ftrace tests need: -h prints the entry
 * point, -l the LOAD segments, both in the format of binutils.
 */
#include <elf.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph;
	FILE *f;
	int i;

	if (argc != 3 || argv[1][0] != '-')
		return 2;
	f = fopen(argv[2], "r");
	if (!f || fread(&eh, sizeof(eh), 1, f) != 1 || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64)
		return 1;
	if (strchr(argv[1], 'h'))
		printf("  Entry point address:               %#lx\n", eh.e_entry);
	for (i = 0; strchr(argv[1], 'l') && i < eh.e_phnum; i++) {
		if (fseek(f, eh.e_phoff + i * eh.e_phentsize, SEEK_SET) ||
		    fread(&ph, sizeof(ph), 1, f) != 1)
			return 1;
		if (ph.p_type == PT_LOAD)
			printf("  LOAD           0x%06lx 0x%016lx 0x%016lx 0x%06lx 0x%06lx\n",
			       ph.p_offset, ph.p_vaddr, ph.p_paddr, ph.p_filesz, ph.p_memsz);
	}
	return 0;
}
