"""Texts for a tokenizer to fail on: code, scripts, emoji, spaces, control characters, numbers."""

import random

CODE = [
    'def f(x: int) -> str:\n    """Twice."""\n    return f"{x*2:>8}"  # 0xFF, 1e-5\n',
    '#include <stdio.h>\nint main(void) {\n\tprintf("%d\\n", 42);\n\treturn 0;\n}\n',
    'fn main() {\n    let v: Vec<u8> = vec![1, 2, 3];\n    println!("{:?}", &v[..2]);\n}\n',
    "package main\n\nfunc add(a, b int) int { return a + b }\n\n// go vet ./...\n",
    "const f = async (x) => ({...x, y: x?.y ?? `a${x}b`});\n/* ==> !== */\n",
    "<!DOCTYPE html>\n<a href=\"#top\" class='x'>&nbsp;it's &lt;b&gt;</a>\n<!-- no -->\n",
    "SELECT t.name, COUNT(*) FROM tokens AS t WHERE t.id >= 256 GROUP BY 1; -- all\n",
    "main :: IO ()\nmain = mapM_ print $ takeWhile (< 10) [x^2 | x <- [1..]]\n",
    "for f in *.txt; do\n  grep -E '^[A-Z]+' \"$f\" | awk '{print $1}' >> /tmp/out 2>&1\ndone\n",
    '{"name": "left", "tags": ["a", "b"], "n": [1.5e10, -0, null, true], "é": "\\u00e9"}\n',
    "\\begin{align}\n  \\alpha_{ij} &= \\frac{e^{s_{ij}}}{\\sum_k e^{s_{ik}}} \\\\\n\\end{align}\n",
    "(defun fact (n)\n  (if (<= n 1) 1 (* n (fact (- n 1)))))\n",
    "section .text\nglobal _start\n_start:\n\tmov\teax, 0x3c\n\txor\tedi, edi\n\tsyscall\n",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old line\n+new line\n \tcontext\n",
    "a=b\r\nif a==b:\r\n\tpass\r\n\r\n\r\n",
    "((((([[[[{{{{}}}}]]]])))))//////******------======~~~~~~!!!!!!",
]
SCRIPTS = [
    "Größe, Straße, naïve café, Žluťoučký kůň, ğışİĞ, Þórr, ŀ, ﬁ ﬂ",
    "Кошка читала газету; її їжак ѣ",
    "Η γάτα κάθεται στο χαλί, ᾧ ἄνθρωπος",
    "مرحبا بالعالم، ٣٤ كتابًا",
    "שָׁלוֹם עוֹלָם",
    "नमस्ते दुनिया, क्षत्रिय ४२",
    "বাংলা ভাষা ৭৮",
    "ਪੰਜਾਬੀ",
    "ગુજરાતી",
    "தமிழ் மொழி",
    "తెలుగు భాష",
    "ಕನ್ನಡ",
    "മലയാളം",
    "සිංහල",
    "ภาษาไทยไม่มีช่องว่าง ๙",
    "ພາສາລາວ",
    "བོད་སྐད་",
    "မြန်မာဘာသာ",
    "ქართული ენა",
    "Հայերեն լեզու",
    "አማርኛ ቋንቋ ፩፪",
    "ភាសាខ្មែរ",
    "ᠮᠣᠩᠭᠣᠯ",
    "ᏣᎳᎩ ꮳꮃꭹ",
    "ᐃᓄᒃᑎᑐᑦ",
    "猫は窓のそばに座って、外を見ています。ｶﾀｶﾅ 々〆",
    "中文句子里没有空格，𠀀𪛖㐀",
    "고양이가 창문 옆에 ᄒ\u1161ᆫ",
    "𞤀𞤣𞤤𞤢𞤥 𐌰𐌱 𓀀 𝐀𝑏𝟘 𐐷",
]
EMOJI = [
    "😀🎉🤖 ok 👍🏽👍",
    "👨\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 👩🏾\u200d🚀",
    "🇫🇷🇩🇪 1\ufe0f\u20e3 ❤\ufe0f ☎",
    "a😀b 😀1😀 ... 😀\n😀",
]
SPACES = [
    "",
    " ",
    "  ",
    "       ",
    "\n",
    "\n\n\n\n",
    "\t",
    "\t\t\t x\t\ty",
    "\r\n",
    "\r\n\r\n a\r\nb\rc\n",
    " \n \n  \n",
    "a ",
    " a",
    "a  b   c    d     e",
    "trailing   ",
    "x \t \n y",
    "a\u00a0b \u00a0 c\u00a0\u00a0d",
    "a\u3000b\u3000\u3000c \u2003d\u2009 \u2028e\u2029f\u202fg\u205fh\u1680i\u180ej",
    "a\u200bb \u200b c\ufeffd\u2060e\u00adf",
    "a\x0bb\x0cc \x0b\x0c d\x85e \x85 f",
]
CONTROLS = [
    "\x00",
    "a\x00b",
    "\x01\x02\x7f\x1b[0m",
    "a\x1b[31mred\x1b[m",
    "\x80\x9f \x8d",
    "\x08\x08",
]
NUMBERS = [
    "0",
    "1234567890",
    "3.14159 1,000,000 2024-05-17 0x1F 1e10 -7 +8 50% $9.99",
    "v1.2.3 a1b2c3 H2O 007 1st 2nd",
    "٠١٢٣٤٥ ०१२३ ０１２３ ௧௨ 一二三",
    "½ ¾ ² ³ ¹ ₀ ₁ ⅷ Ⅻ ① ⑳ 〇 ㊿ 𝟙𝟚",
    "a²b x₁y 5½ km²",
]
WORDS = [
    "it's you'll DON'T we've I'm he'd they're O'Neil 'tis rock'n'roll",
    "it’s you’ll don’t",
    "IT'S YOU'LL WE'VE I'M HE'D THEY'RE",
    "'s 't 're 've 'm 'll 'd '' '",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "a" * 300,
    "ab" * 90,
    "é" * 70,
    "_" * 40 + "x" + "-" * 33,
    "https://example.org/a/b?c=d&e=%20f#g user@example.com C:\\Users\\x",
    "e\u0301 cafe\u0301 n\u0303 a\u0308\u0304 \u0301x Z\u0351\u0357\u0369a",
    "«a» “b” ‘c’ – — … • § ¶ † © ® ™ € £ ¥ ₹ ₿ ° ± × ÷ ≠ ≤ ∑ ∫ √ ∞ → ⇒",
    "�\ufffe\uffff\ue000\U000f0000\U0010ffff\u0378\u2fff",
    "the The THE tHe",
]
SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b <|endoftext|> <|endoftext|>",
    "<|im_start|><|im_start|><|im_end|>",
    "<repo_name>x<file_sep>y<reponame><filename><gh_stars>",
    "<|im_start |> <|im_end| > <|IM_END|> <im_end>",
    "<jupyter_start><jupyter_code>1<jupyter_output>2",
]
FIXED = CODE + SCRIPTS + EMOJI + SPACES + CONTROLS + NUMBERS + WORDS + SPECIAL


def mixtures(count=120):
    """Return texts glued from random pieces of the others, and from single characters of them."""
    rng = random.Random(11)
    letters = sorted(set("".join(FIXED)))
    source = "".join(FIXED)
    for k in range(count):
        if k % 2:
            yield "".join(rng.choices(letters + [" ", "\n", "'", "1"] * 9, k=rng.randint(5, 30)))
        else:
            starts = [rng.randrange(len(source)) for _ in range(rng.randint(2, 4))]
            yield "".join(source[at : at + rng.randint(1, 12)] for at in starts)


TEXTS = FIXED + list(mixtures())

# The model has no token for some bytes: those of a few control characters, and of code points that
# nobody uses. llama.cpp leaves such a character out.
LOST = ["a\x04b", "\x06", "x \x13\x14 y", "\x16\x1d", "a\U0004002fb"]
