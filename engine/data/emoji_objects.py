"""The objects of pictogram's world: their emoji and what they are called."""

from __future__ import annotations

# name: emoji, then further names separated by "|". A name may have several words.
OBJECTS: dict[str, str] = {
    # animals
    "dog": "🐶 puppy", "cat": "🐱 kitten", "fox": "🦊", "bear": "🐻", "panda": "🐼", "tiger": "🐯", "lion": "🦁",
    "cow": "🐮", "pig": "🐷", "frog": "🐸", "monkey": "🐵", "rabbit": "🐰 bunny", "mouse": "🐭", "koala": "🐨",
    "chicken": "🐔 hen", "chick": "🐥", "penguin": "🐧", "owl": "🦉", "unicorn": "🦄", "horse": "🐴", "wolf": "🐺",
    "bee": "🐝", "butterfly": "🦋", "ladybug": "🐞 ladybird", "snail": "🐌", "turtle": "🐢 tortoise", "snake": "🐍",
    "octopus": "🐙", "crab": "🦀", "fish": "🐟", "dolphin": "🐬", "whale": "🐳", "shark": "🦈", "elephant": "🐘",
    "camel": "🐫", "duck": "🦆", "dinosaur": "🦖", "bat": "🦇", "eagle": "🦅", "parrot": "🦜", "peacock": "🦚", "swan": "🦢",
    "flamingo": "🦩", "giraffe": "🦒", "zebra": "🦓", "hedgehog": "🦔", "squirrel": "🐿️", "kangaroo": "🦘", "sloth": "🦥",
    "otter": "🦦", "lobster": "🦞", "squid": "🦑", "scorpion": "🦂", "spider": "🕷️", "lizard": "🦎", "gorilla": "🦍",
    "goat": "🐐", "ram": "🐏", "crocodile": "🐊 alligator", "hamster": "🐹", "raccoon": "🦝",
    # food
    "apple": "🍎", "banana": "🍌", "tangerine": "🍊 mandarin", "strawberry": "🍓", "watermelon": "🍉", "lemon": "🍋",
    "cherry": "🍒", "pineapple": "🍍", "peach": "🍑", "carrot": "🥕", "corn": "🌽", "mushroom": "🍄 toadstool",
    "broccoli": "🥦", "eggplant": "🍆 aubergine", "tomato": "🍅", "bread": "🍞", "cheese": "🧀", "pizza": "🍕",
    "burger": "🍔 hamburger", "donut": "🍩 doughnut", "cookie": "🍪 biscuit", "cake": "🎂", "ice cream": "🍦",
    "egg": "🥚", "croissant": "🥐", "lollipop": "🍭", "pear": "🍐", "kiwi": "🥝", "avocado": "🥑", "coconut": "🥥",
    "pepper": "🌶️ chili", "potato": "🥔", "onion": "🧅", "pretzel": "🥨", "hot dog": "🌭", "taco": "🌮", "cupcake": "🧁 muffin",
    "chocolate": "🍫", "pie": "🥧", "honey": "🍯",
    # things that move
    "car": "🚗", "bus": "🚌", "rocket": "🚀 spaceship", "airplane": "✈️ plane", "helicopter": "🚁",
    "boat": "⛵ sailboat", "ship": "🚢", "bicycle": "🚲 bike", "train": "🚂 locomotive", "tractor": "🚜",
    "truck": "🚚 lorry", "ufo": "🛸", "scooter": "🛵", "taxi": "🚕", "ambulance": "🚑", "tram": "🚊", "canoe": "🛶",
    "skateboard": "🛹", "satellite": "🛰️", "parachute": "🪂",
    # the sky and the land
    "sun": "☀️", "moon": "🌕", "crescent moon": "🌙 crescent", "star": "⭐", "cloud": "☁️", "rainbow": "🌈",
    "snowflake": "❄️", "lightning": "⚡", "fire": "🔥 flame", "drop": "💧", "earth": "🌍 globe", "planet": "🪐 saturn",
    "comet": "☄️", "volcano": "🌋", "mountain": "🏔️", "island": "🏝️",
    # plants
    "tree": "🌳", "pine": "🌲 fir", "palm": "🌴", "cactus": "🌵", "sunflower": "🌻", "rose": "🌹",
    "flower": "🌷 tulip", "clover": "🍀", "leaf": "🍁", "pumpkin": "🎃",
    # things
    "house": "🏠 home", "castle": "🏰", "tent": "⛺", "balloon": "🎈", "gift": "🎁 present", "umbrella": "☂️",
    "hat": "🎩", "crown": "👑", "diamond": "💎 gem", "key": "🔑", "bell": "🔔", "bulb": "💡 lamp", "book": "📕",
    "clock": "⏰", "guitar": "🎸", "trumpet": "🎺", "drum": "🥁", "violin": "🎻", "football": "⚽", "basketball": "🏀",
    "trophy": "🏆 cup", "palette": "🎨", "scissors": "✂️", "hammer": "🔨", "magnet": "🧲", "camera": "📷",
    "laptop": "💻 computer", "television": "📺 tv", "robot": "🤖", "ghost": "👻", "snowman": "⛄", "skull": "💀",
    "alien": "👽", "heart": "❤️", "door": "🚪", "chair": "🪑", "teddy": "🧸", "anchor": "⚓", "candle": "🕯️",
    "shoe": "👟 sneaker", "shirt": "👕", "dress": "👗", "glasses": "👓", "cap": "🧢", "backpack": "🎒 bag",
    "ladder": "🪜", "lantern": "🏮", "kite": "🪁", "teapot": "🫖", "telescope": "🔭", "microscope": "🔬", "medal": "🏅",
    "puzzle": "🧩", "piano": "🎹", "saxophone": "🎷", "boot": "🥾", "scarf": "🧣", "ring": "💍", "phone": "📱", "sofa": "🛋️ couch",
    "bed": "🛏️", "bucket": "🪣", "ferris wheel": "🎡", "fountain": "⛲", "church": "⛪", "factory": "🏭", "tower": "🗼",
}  # fmt: skip

# What the shipped decoder has been taught so far: few and clean before many and blurred. Others join as training goes on; the
# tokenizer's recipe draws all of them.
TAUGHT: tuple[str, ...] = (
    "dog", "cat", "fox", "bear", "panda", "pig", "frog", "penguin",
    "apple", "strawberry", "mushroom", "car", "bus", "rocket", "boat",
    "sun", "moon", "star", "cloud", "rainbow", "fire",
    "tree", "pine", "cactus", "sunflower", "pumpkin",
    "house", "balloon", "gift", "heart", "football", "ghost",
)  # fmt: skip

IRREGULAR = {
    "mouse": "mice", "wolf": "wolves", "fish": "fish", "snowman": "snowmen", "leaf": "leaves", "corn": "corn",
    "bread": "bread", "broccoli": "broccoli", "scissors": "scissors", "glasses": "glasses", "lightning": "lightning",
    "honey": "honey", "chocolate": "chocolate", "ufo": "ufos", "kiwi": "kiwis", "avocado": "avocados", "taco": "tacos",
    "flamingo": "flamingos", "kangaroo": "kangaroos", "piano": "pianos", "scarf": "scarves",
    "fire": "fires", "ice cream": "ice creams", "octopus": "octopuses", "puppy": "puppies",
}  # fmt: skip

PAIRS = ("scissors", "glasses")  # a single one is said without an article
