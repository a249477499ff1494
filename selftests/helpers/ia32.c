// SPDX-License-Identifier: GPL-2.0
/*
 * A 32-bit program with probe sites; built with the kernel's nolibc. "ia32 -l"
 * prints the sites as "name address", "ia32 N" runs each of them N times and
 * exits with 0 if all results were right.
 */
#define SITE(name, pre, insn, post)				\
	asm(".text\n.globl fn_" #name ", pc_" #name "\n"	\
	    "fn_" #name ": " pre "\n"				\
	    "pc_" #name ": " insn "\n" post "\nret\n");		\
	extern char fn_##name[], pc_##name[]

static volatile int cell __attribute__((used)) = 1000;
int data_word = 1000;

/* Each: int fn(int in eax) -> eax; the expected result is f(eax) = eax + 5. */
SITE(nop, "", "nop", "add $5, %eax");
SITE(nop_long, "", ".byte 0x0f,0x1f,0x44,0,0", "add $5, %eax");
SITE(push, "", "push %ebp", "pop %ecx\nadd $5, %eax");
SITE(push_eax, "", "push %eax", "pop %eax\nadd $5, %eax");
SITE(add, "", "add $5, %eax", "");
SITE(inc, "add $4, %eax", "inc %eax", "");	/* 0x40: a REX prefix elsewhere */
SITE(call, "", "call 1f", "jmp 2f\n1: add $5, %eax\nret\n2:");
SITE(call_reg, "mov $1f, %ecx", "call *%ecx", "jmp 2f\n1: add $5, %eax\nret\n2:");
SITE(jmp, "", "jmp 1f", "ud2\n1: add $5, %eax");
SITE(jcc, "cmp $-1, %eax", "jne 1f", "ud2\n1: add $5, %eax");
SITE(jcc_not, "cmp $-1, %eax", "je 1f", "add $5, %eax\n1:");
SITE(ret, "add $5, %eax", "ret", "");
SITE(leave, "push %ebp\nmov %esp, %ebp\nsub $16, %esp\nadd $5, %eax", "leave", "");
SITE(mem, "", "add data_word, %eax", "sub $995, %eax");
SITE(sub_esp, "", "sub $16, %esp", "add $16, %esp\nadd $5, %eax");
SITE(pusha, "", "pusha", "popa\nadd $5, %eax");	/* invalid in 64-bit mode */

static const struct { const char *name; char *fn, *pc; } sites[] = {
#define S(name) { #name, fn_##name, pc_##name }
	S(nop), S(nop_long), S(push), S(push_eax), S(add), S(inc), S(call), S(call_reg),
	S(jmp), S(jcc), S(jcc_not), S(ret), S(leave), S(mem), S(sub_esp), S(pusha),
};
#define NR_SITES (sizeof(sites) / sizeof(sites[0]))

static int run(char *fn, int in)
{
	int out = in;

	asm volatile("call *%1" : "+a"(out) : "r"(fn) : "ecx", "edx", "memory", "cc");
	return out;
}

int main(int argc, char **argv)
{
	unsigned int i;
	int n, k;

	if (argc == 2 && !strcmp(argv[1], "-l")) {
		for (i = 0; i < NR_SITES; i++)
			printf("%s %lx %d\n", sites[i].name, (unsigned long)sites[i].pc,
			       sites[i].pc == sites[i].fn);
		return 0;
	}
	n = argc > 1 ? atoi(argv[1]) : 1;
	for (i = 0; i < NR_SITES; i++)
		for (k = 0; k < n; k++)
			if (run(sites[i].fn, k) != k + 5) {
				printf("%s: wrong result\n", sites[i].name);
				return 1;
			}
	return 0;
}
