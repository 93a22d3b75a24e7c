"""The objects of pictogram's world: their emoji, their names, and which of them a model is trained on."""

from __future__ import annotations

# kind: name: emoji, then further names that captions also use, separated by "|". A name may have several words. Only emoji without a
# joiner are used, because not every version of the drawing library can join.
KINDS: dict[str, dict[str, str]] = {
    "animals": {
        "dog": "🐶 puppy", "cat": "🐱 kitten", "fox": "🦊", "bear": "🐻", "panda": "🐼", "tiger": "🐯", "lion": "🦁",
        "cow": "🐮", "pig": "🐷", "frog": "🐸", "monkey": "🐵", "rabbit": "🐰 bunny", "mouse": "🐭", "koala": "🐨",
        "chicken": "🐔 hen", "chick": "🐥", "penguin": "🐧", "owl": "🦉", "unicorn": "🦄", "horse": "🐴 pony", "wolf": "🐺",
        "bee": "🐝", "butterfly": "🦋", "ladybug": "🐞 ladybird", "snail": "🐌", "turtle": "🐢 tortoise", "snake": "🐍",
        "octopus": "🐙", "crab": "🦀", "fish": "🐟", "dolphin": "🐬", "whale": "🐳", "shark": "🦈", "elephant": "🐘",
        "camel": "🐫", "duck": "🦆", "dinosaur": "🦖", "bat": "🦇", "eagle": "🦅", "parrot": "🦜", "peacock": "🦚", "swan": "🦢",
        "flamingo": "🦩", "giraffe": "🦒", "zebra": "🦓", "hedgehog": "🦔", "squirrel": "🐿️", "kangaroo": "🦘", "sloth": "🦥",
        "otter": "🦦", "lobster": "🦞", "squid": "🦑", "scorpion": "🦂", "spider": "🕷️", "lizard": "🦎", "gorilla": "🦍",
        "goat": "🐐", "ram": "🐏", "crocodile": "🐊 alligator", "hamster": "🐹", "raccoon": "🦝",
        "sheep": "🐑 lamb", "dragon": "🐲", "bird": "🐦", "deer": "🦌", "ant": "🐜", "rooster": "🐓", "seal": "🦭", "leopard": "🐆",
    },
    "food": {
        "apple": "🍎", "banana": "🍌", "tangerine": "🍊 mandarin", "strawberry": "🍓", "watermelon": "🍉", "lemon": "🍋",
        "cherry": "🍒", "pineapple": "🍍", "peach": "🍑", "carrot": "🥕", "corn": "🌽", "mushroom": "🍄 toadstool",
        "broccoli": "🥦", "eggplant": "🍆 aubergine", "tomato": "🍅", "bread": "🍞", "cheese": "🧀", "pizza": "🍕",
        "burger": "🍔 hamburger", "donut": "🍩 doughnut", "cookie": "🍪 biscuit", "cake": "🎂", "ice cream": "🍦",
        "egg": "🥚", "croissant": "🥐", "lollipop": "🍭", "pear": "🍐", "kiwi": "🥝", "avocado": "🥑", "coconut": "🥥",
        "pepper": "🌶️ chili", "potato": "🥔", "onion": "🧅", "pretzel": "🥨", "hot dog": "🌭", "taco": "🌮", "cupcake": "🧁 muffin",
        "chocolate": "🍫", "pie": "🥧", "honey": "🍯",
        "grapes": "🍇", "coffee": "☕ cup", "beer": "🍺", "wine": "🍷", "milk": "🥛", "fries": "🍟", "popcorn": "🍿", "candy": "🍬",
        "sandwich": "🥪",
    },
    "vehicles": {
        "car": "🚗", "bus": "🚌", "rocket": "🚀 spaceship", "airplane": "✈️ plane", "helicopter": "🚁",
        "boat": "⛵ sailboat", "ship": "🚢", "bicycle": "🚲 bike", "train": "🚂 locomotive", "tractor": "🚜",
        "truck": "🚚 lorry", "ufo": "🛸", "scooter": "🛵", "taxi": "🚕", "ambulance": "🚑", "tram": "🚊", "canoe": "🛶",
        "skateboard": "🛹", "satellite": "🛰️", "parachute": "🪂", "motorcycle": "🏍️ motorbike",
    },
    "sky and land": {
        "sun": "☀️", "moon": "🌕", "crescent moon": "🌙 crescent", "star": "⭐", "cloud": "☁️", "rainbow": "🌈",
        "snowflake": "❄️", "lightning": "⚡", "fire": "🔥 flame", "drop": "💧", "earth": "🌍 globe", "planet": "🪐 saturn",
        "comet": "☄️", "volcano": "🌋", "mountain": "🏔️", "island": "🏝️", "wave": "🌊", "tornado": "🌪️", "rock": "🪨 stone",
    },
    "plants": {
        "tree": "🌳", "pine": "🌲 fir", "palm": "🌴", "cactus": "🌵", "sunflower": "🌻", "rose": "🌹",
        "flower": "🌷 tulip", "clover": "🍀", "leaf": "🍁", "pumpkin": "🎃", "plant": "🪴",
    },
    "buildings": {
        "house": "🏠 home", "castle": "🏰", "tent": "⛺", "church": "⛪", "factory": "🏭", "tower": "🗼", "fountain": "⛲",
        "ferris wheel": "🎡", "school": "🏫", "hospital": "🏥", "hut": "🛖",
    },
    "people": {
        "man": "👨", "woman": "👩", "boy": "👦", "girl": "👧", "baby": "👶", "king": "🤴 prince", "queen": "👸 princess",
        "clown": "🤡", "wizard": "🧙", "mermaid": "🧜", "ninja": "🥷", "policeman": "👮",
        "smiley": "😀", "sad face": "😢", "angry face": "😡", "santa": "🎅",
    },
    "figures": {
        "robot": "🤖", "ghost": "👻", "snowman": "⛄", "skull": "💀", "alien": "👽", "teddy": "🧸 teddy bear", "angel": "👼", "devil": "😈",
    },
    "clothes": {
        "hat": "🎩", "crown": "👑", "shoe": "👟 sneaker", "shirt": "👕", "dress": "👗", "glasses": "👓", "cap": "🧢",
        "backpack": "🎒 bag", "boot": "🥾", "scarf": "🧣", "ring": "💍", "umbrella": "☂️", "jacket": "🧥 coat", "jeans": "👖 trousers",
        "tie": "👔", "sock": "🧦", "glove": "🧤",
    },
    "things": {
        "balloon": "🎈", "gift": "🎁 present", "diamond": "💎 gem", "key": "🔑", "bell": "🔔", "bulb": "💡 lamp", "book": "📕",
        "clock": "⏰", "trophy": "🏆", "palette": "🎨", "scissors": "✂️", "hammer": "🔨", "magnet": "🧲", "camera": "📷",
        "laptop": "💻 computer", "television": "📺 tv", "heart": "❤️", "door": "🚪", "chair": "🪑", "anchor": "⚓", "candle": "🕯️",
        "ladder": "🪜", "lantern": "🏮", "teapot": "🫖", "telescope": "🔭", "microscope": "🔬", "medal": "🏅", "puzzle": "🧩",
        "phone": "📱", "sofa": "🛋️ couch", "bed": "🛏️", "bucket": "🪣", "window": "🪟", "box": "📦", "basket": "🧺", "pencil": "✏️",
        "letter": "✉️", "axe": "🪓", "sword": "🗡️", "shield": "🛡️", "saw": "🪚", "bomb": "💣", "flag": "🚩", "knife": "🔪",
        "spoon": "🥄", "lock": "🔒", "gear": "⚙️", "hand": "✋", "eye": "👁️", "bone": "🦴", "tooth": "🦷", "toilet": "🚽",
        "bathtub": "🛁", "mirror": "🪞", "broom": "🧹",
    },
    "music": {
        "guitar": "🎸", "trumpet": "🎺", "drum": "🥁", "violin": "🎻", "piano": "🎹", "saxophone": "🎷", "microphone": "🎤",
        "headphones": "🎧",
    },
    "sport": {
        "football": "⚽", "basketball": "🏀", "kite": "🪁", "baseball": "⚾", "tennis": "🎾", "volleyball": "🏐", "dice": "🎲",
        "target": "🎯",
    },
}  # fmt: skip

OBJECTS: dict[str, str] = {name: said for kind in KINDS.values() for name, said in kind.items()}

# The objects of the first shipped decoder: a few clean ones rather than many blurred ones. Its vocabulary is made of these names, so
# neither the list nor their further names may change.
TAUGHT: tuple[str, ...] = (
    "dog", "cat", "fox", "bear", "panda", "pig", "frog", "penguin",
    "apple", "strawberry", "mushroom", "car", "bus", "rocket", "boat",
    "sun", "moon", "star", "cloud", "rainbow", "fire",
    "tree", "pine", "cactus", "sunflower", "pumpkin",
    "house", "balloon", "gift", "heart", "football", "ghost",
)  # fmt: skip

# Common nouns in prompts. Of objects that look alike at 40 pixels only one is listed (a king looks like a queen there), and of common
# nouns only so many that each is learned well.
COMMON: tuple[str, ...] = (
    *TAUGHT,
    "tiger", "lion", "cow", "monkey", "rabbit", "mouse", "chicken", "owl", "unicorn", "horse", "wolf", "bee", "butterfly", "spider",
    "turtle", "snake", "octopus", "fish", "whale", "shark", "elephant", "duck", "dinosaur", "giraffe", "sheep", "dragon", "bird",
    "hedgehog", "squirrel", "crab", "zebra", "flamingo",
    "banana", "tangerine", "watermelon", "lemon", "cherry", "pineapple", "carrot", "bread", "cheese", "pizza", "burger", "donut",
    "cookie", "cake", "ice cream", "grapes", "coffee", "beer", "corn", "pear", "avocado", "popcorn", "egg",
    "airplane", "helicopter", "ship", "bicycle", "train", "truck", "ufo", "motorcycle", "tractor",
    "snowflake", "lightning", "earth", "planet", "volcano", "mountain", "palm", "rose", "flower", "leaf",
    "castle", "tent", "church", "ferris wheel",
    "man", "woman", "boy", "girl", "baby", "queen", "clown", "santa", "wizard", "smiley", "sad face", "robot",
    "snowman", "skull", "alien", "teddy",
    "hat", "crown", "shoe", "shirt", "dress", "glasses", "backpack", "umbrella", "ring",
    "diamond", "key", "bell", "bulb", "book", "clock", "trophy", "scissors", "hammer", "camera", "laptop", "television", "phone",
    "door", "chair", "sofa", "bed", "candle", "sword", "flag", "hand", "pencil", "box", "anchor",
    "guitar", "trumpet", "drum", "piano", "violin", "basketball", "kite", "dice", "target",
)  # fmt: skip

IRREGULAR = {
    "mouse": "mice", "wolf": "wolves", "fish": "fish", "snowman": "snowmen", "leaf": "leaves", "corn": "corn",
    "bread": "bread", "broccoli": "broccoli", "scissors": "scissors", "glasses": "glasses", "lightning": "lightning",
    "honey": "honey", "chocolate": "chocolate", "ufo": "ufos", "kiwi": "kiwis", "avocado": "avocados", "taco": "tacos",
    "flamingo": "flamingos", "kangaroo": "kangaroos", "piano": "pianos", "scarf": "scarves",
    "fire": "fires", "ice cream": "ice creams", "octopus": "octopuses", "puppy": "puppies",
    "man": "men", "woman": "women", "policeman": "policemen", "sheep": "sheep", "deer": "deer", "grapes": "grapes", "milk": "milk",
    "fries": "fries", "popcorn": "popcorn", "jeans": "jeans", "trousers": "trousers", "knife": "knives", "tooth": "teeth",
    "headphones": "headphones", "dice": "dice", "tennis": "tennis",
}  # fmt: skip

PAIRS = ("scissors", "glasses", "grapes", "fries", "jeans", "trousers", "headphones")  # captions name a single one without an article


def plural(name: str) -> str:
    """The plural of an object's name: "cherry" -> "cherries", "mouse" -> "mice"."""
    if name in IRREGULAR:
        return IRREGULAR[name]
    if name.endswith("y") and name[-2] not in "aeiou":
        return name[:-1] + "ies"
    return name + ("es" if name.endswith(("s", "x", "ch", "sh", "o")) else "s")


def names_of(name: str) -> list[str]:
    """The name and its synonyms."""
    _, _, rest = OBJECTS[name].partition(" ")
    return [name, *(rest.split("|") if rest else [])]
