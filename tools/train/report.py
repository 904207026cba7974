"""Prints the tables of the model cards from the file that measure.py wrote: report.py MEASURED.json target|draft|pair|samples."""
import json
import sys

NAMES = {"f16": "F16 (master)", "q8_0": "Q8_0 (shipped)", "q8_0+a8": "Q8_0, activations rounded to 8 bit per 32", "q4_0": "Q4_0"}


def losses(part: dict) -> None:
    print("| weights | nats per token: all | assistant | user | perplexity | bits per byte | mean KL to F16 | same top token |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, name in NAMES.items():
        row = part[kind]
        print(f"| {name} | {row['all']:.4f} | {row['assistant']:.4f} | {row['user']:.4f} | {row['perplexity']:.3f} "
              f"| {row['bits_per_byte']:.4f} | {row['kl_mean']:.1e} | {100 * row['same_top']:.2f} % |")


def pair(report: dict) -> None:
    for name, walk in report["acceptance"].items():
        print(f"\n{name}: {walk['tokens']} tokens, the draft names {100 * walk['match']:.1f} % of them\n")
        print("| K | tokens per target pass | acceptance at position 1, 2, .. K, given that all before were accepted |\n|---|---|---|")
        for depth in map(str, range(1, 9)):
            print(f"| {depth} | {walk[depth]['tokens_per_pass']:.2f} | {' '.join(f'{a:.3f}' for a in walk[depth]['position'])} |")


def samples(report: dict) -> None:
    for sample in report["samples"]:
        print(f"\n    {sample['prompt'].replace('<|end|>', '<|end|>' + chr(10) + '    ')}")
        for name in report["acceptance"]:
            print(f"        {name}: {sample[name]}")


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    {"target": lambda: losses(report["target"]), "draft": lambda: losses(report["draft"]), "pair": lambda: pair(report),
     "samples": lambda: samples(report)}[sys.argv[2]]()


if __name__ == "__main__":
    main()
