"""The meanings of words for pictogram: words that are read as others, and the nearest things of every noun.

Written by hand for this world: what matters is which of its objects a user would accept instead, by kind and by looks. A dictionary of
English (WordNet has more than 80,000 nouns) knows more words and says nothing about looks.
"""

from __future__ import annotations

# A known word: the words that are read as it, in the singular; a plural is read as the plural.
READ_AS: dict[str, str] = {
    "cat": "kitty pussycat housecat",
    "dog": "doggy doggie hound",
    "car": "automobile auto motorcar",
    "airplane": "aeroplane airliner jet aircraft",
    "motorcycle": "motorbike",
    "bicycle": "pushbike bike cycle",
    "rocket": "spacecraft starship",
    "boat": "rowboat yacht sailboat",
    "ship": "cruiser ferry steamer liner",
    "helicopter": "chopper",
    "truck": "lorry van",
    "football": "soccer soccerball",
    "rabbit": "bunny hare",
    "chicken": "hen",
    "sheep": "lamb ewe",
    "whale": "orca",
    "snake": "serpent",
    "turtle": "tortoise",
    "bee": "bumblebee honeybee",
    "dinosaur": "trex dino",
    "pig": "piggy piglet hog",
    "horse": "pony stallion mare steed",
    "cow": "calf bull",
    "donut": "doughnut",
    "burger": "hamburger cheeseburger",
    "cookie": "biscuit",
    "bread": "loaf toast",
    "beer": "ale lager",
    "coffee": "cappuccino espresso latte",
    "ice cream": "icecream gelato",
    "pumpkin": "jackolantern",
    "pine": "spruce fir conifer",
    "tree": "oak beech elm birch maple",
    "flower": "tulip blossom",
    "mushroom": "toadstool",
    "house": "home cottage bungalow",
    "castle": "fortress fort palace citadel",
    "church": "chapel cathedral",
    "boy": "lad",
    "girl": "lass",
    "baby": "infant newborn",
    "man": "guy gentleman dude",
    "woman": "lady",
    "policeman": "cop policewoman officer",
    "queen": "princess",
    "king": "prince",
    "wizard": "sorcerer magician",
    "robot": "android droid",
    "ghost": "spirit phantom spectre specter",
    "alien": "extraterrestrial martian",
    "smiley": "emoji smile",
    "clown": "jester",
    "shirt": "tshirt tee blouse",
    "dress": "gown frock",
    "glasses": "spectacles",
    "backpack": "rucksack knapsack schoolbag",
    "umbrella": "parasol brolly",
    "shoe": "sneaker",
    "jacket": "coat parka hoodie",
    "jeans": "trousers pants",
    "crown": "tiara",
    "hat": "tophat",
    "diamond": "gem gemstone jewel brilliant",
    "gift": "present parcel",
    "bulb": "lightbulb lamp",
    "book": "novel textbook dictionary",
    "clock": "alarm",
    "laptop": "computer pc",
    "television": "tv telly",
    "phone": "smartphone cellphone telephone mobile",
    "sofa": "couch settee loveseat",
    "sword": "blade sabre saber rapier",
    "axe": "hatchet tomahawk",
    "violin": "fiddle",
    "trumpet": "bugle cornet",
    "fire": "flame bonfire campfire blaze",
    "lightning": "thunderbolt",
    "earth": "globe",
    "planet": "saturn",
    "mountain": "peak mount",
    "dice": "die",
    "flag": "banner",
    "bucket": "pail",
    "box": "carton crate",
    "letter": "envelope mail",
    "ladybug": "ladybird",
    "crocodile": "alligator",
    "huge": "gigantic enormous giant massive immense",
    "tiny": "miniature mini teeny",
    "red": "crimson scarlet ruby",
    "blue": "navy azure cobalt indigo",
    "green": "emerald",
    "yellow": "golden gold",
    "purple": "violet lilac lavender mauve",
    "pink": "magenta rosy",
    "gray": "grey silver",
    "turquoise": "cyan aqua",
    "brown": "beige tan maroon",
    "white": "ivory",
    "grapes": "grape",
    "tangerines": "oranges",
    "below": "underneath beneath",
    "on": "atop",
    "beside": "alongside besides by",
    "two": "couple pair twin",
    "three": "trio",
    "four": "quartet",
    "one": "single",
    "sunset": "twilight dusk dawn sunrise",
    "night": "nighttime midnight",
    "meadow": "lawn pasture prairie",
    "beach": "shore seaside coast seashore",
    "desert": "dune sahara",
    "space": "galaxy cosmos universe",
    "stars": "starry",
    "background": "backdrop",
    "under water": "underwater",
}

PHRASES = {  # words that form one thing
    "soccer ball": "football", "pine tree": "pine", "fir tree": "pine", "christmas tree": "pine", "palm tree": "palm",
    "oak tree": "tree", "apple tree": "tree", "teddy bear": "teddy", "light bulb": "bulb", "top hat": "hat", "tv set": "television",
    "cell phone": "phone", "mobile phone": "phone", "smiley face": "smiley", "smiling face": "smiley", "happy face": "smiley",
    "crying face": "sad face", "mad face": "angry face", "space ship": "rocket", "space rocket": "rocket", "sail boat": "boat",
    "sailing boat": "boat", "t shirt": "shirt", "pick up": "truck", "police officer": "policeman",
    "santa claus": "santa", "father christmas": "santa", "jack lantern": "pumpkin", "polar bear": "bear", "killer whale": "whale",
    "t rex": "dinosaur", "steam train": "train", "hot air balloon": "balloon", "maple leaf": "leaf", "tea pot": "teapot",
    "motor bike": "motorcycle", "motor cycle": "motorcycle",
}  # fmt: skip

# Pairs of words whose last word alone would be a different thing.
DECEPTIVE = (
    "butter fly", "cat fish", "cup cake", "dragon fly", "ferris wheel", "fire engine", "fire fighter", "fire place", "fire truck",
    "guinea pig", "hot dog", "jelly fish", "lady bird", "lady bug", "pine apple", "rain bow", "sea horse", "sea star", "snow ball",
    "star fish", "sun glasses", "tennis ball",
)  # fmt: skip

# Groups of similar things, by the kind in KINDS that is used if the model knows none of a group. The best substitutes among the objects
# come first, other nouns follow after the bar.
NEAR: dict[str, tuple[str, ...]] = {
    "animals": (
        "cat tiger lion leopard|kitten panther jaguar cheetah lynx cougar puma bobcat ocelot feline cub",
        "dog wolf fox|puppy poodle bulldog terrier retriever husky dachshund pug beagle labrador chihuahua dalmatian coyote jackal "
        "hyena canine",
        "fox wolf dog raccoon|badger skunk weasel ferret mink opossum possum",
        "bear panda koala teddy|grizzly wombat",
        "rabbit mouse hamster squirrel hedgehog|rat chipmunk rodent guinea gerbil mole shrew beaver porcupine vole groundhog "
        "chinchilla",
        "monkey gorilla sloth|ape chimpanzee chimp orangutan baboon lemur gibbon primate",
        "horse unicorn zebra camel deer cow giraffe|donkey mule foal moose elk reindeer antelope gazelle stag llama alpaca caribou "
        "pegasus centaur",
        "cow sheep goat ram pig horse|ox bison buffalo yak boar livestock cattle",
        "elephant giraffe zebra camel cow|rhino rhinoceros hippo hippopotamus mammoth tapir",
        "sheep goat ram|kid wool",
        "kangaroo koala rabbit mouse|wallaby platypus",
        "bird owl eagle parrot chicken duck penguin|dove pigeon sparrow robin crow raven finch canary budgie cuckoo swallow wren "
        "blackbird seagull gull woodpecker hummingbird toucan cockatoo nightingale magpie jay kingfisher nest fledgling",
        "duck swan flamingo bird penguin|goose drake duckling pelican heron stork crane gosling puffin",
        "chicken rooster duck bird chick|turkey cock peacock ostrich emu pheasant quail poultry cockerel",
        "eagle owl bird parrot|hawk falcon vulture condor kite buzzard",
        "snake lizard crocodile turtle dragon frog|gecko iguana chameleon viper cobra python reptile anaconda newt salamander komodo",
        "frog turtle snake|toad tadpole amphibian",
        "dragon dinosaur snake lizard unicorn|monster hydra griffin phoenix beast wyvern godzilla kraken creature",
        "dinosaur dragon crocodile lizard|brontosaurus stegosaurus triceratops raptor pterodactyl tyrannosaurus",
        "fish shark whale dolphin octopus|goldfish salmon tuna trout cod carp eel catfish swordfish clownfish piranha herring "
        "blowfish pufferfish seahorse",
        "whale shark dolphin fish seal|porpoise narwhal walrus manatee otter",
        "octopus squid crab fish lobster|jellyfish shrimp prawn clam oyster mussel starfish coral shell seashell shellfish cuttlefish",
        "bee butterfly ladybug ant spider|wasp fly mosquito hornet moth beetle insect bug dragonfly grasshopper cricket firefly "
        "cockroach caterpillar",
        "spider scorpion ant bee|tick centipede tarantula millipede",
        "snail turtle snake|slug worm earthworm leech maggot",
        "seal penguin whale|",
        "bat owl mouse|",
    ),
    "food": (
        "apple cherry strawberry tomato pear peach|fruit plum apricot nectarine fig date pomegranate quince persimmon guava",
        "tangerine lemon peach apple|oranges grapefruit clementine satsuma citrus kumquat",
        "strawberry cherry grapes|raspberry blueberry blackberry cranberry berry currant gooseberry mulberry raisin",
        "banana pineapple watermelon lemon kiwi coconut|mango papaya melon passionfruit lychee plantain cantaloupe dragonfruit",
        "carrot tomato corn broccoli potato onion pepper eggplant pumpkin|vegetable cucumber cabbage lettuce spinach pea bean celery "
        "radish beet turnip leek garlic zucchini courgette asparagus cauliflower squash salad parsley kale gherkin pickle parsnip "
        "artichoke lentil",
        "mushroom broccoli|truffle fungus champignon",
        "bread croissant pretzel cheese|bun roll baguette bagel pancake waffle cereal flour dough pastry muffin brioche",
        "pizza burger taco sandwich|hotdog sausage pasta spaghetti noodle lasagna kebab burrito sushi meal dinner lunch breakfast "
        "supper soup stew curry dumpling ravioli omelette rice ramen wrap snack",
        "burger chicken egg|meat steak bacon ham beef pork ribs drumstick meatball salami",
        "fries potato popcorn burger|chips crisps nachos",
        "cheese egg bread milk|butter yogurt yoghurt cheddar margarine",
        "cake cupcake pie donut cookie ice cream|pudding brownie tart dessert sweets cheesecake gingerbread wafer macaron eclair "
        "custard jelly",
        "ice cream cake donut cupcake|sundae popsicle milkshake sorbet frosting",
        "lollipop candy chocolate donut cookie|caramel toffee gum marshmallow fudge jellybean licorice",
        "honey bee|jam syrup marmalade sugar nectar",
        "egg chicken|yolk",
        "coconut avocado pear|nut peanut almond walnut hazelnut chestnut acorn cashew",
    ),
    "drinks": (
        "coffee beer wine milk teapot|tea cocoa drink mug juice lemonade cola soda beverage glass tumbler goblet saucer thermos water "
        "bottle",
        "beer wine coffee|whisky whiskey vodka rum cider cocktail champagne liquor pint brandy",
    ),
    "vehicles": (
        "car taxi truck bus|limousine limo sedan convertible cab coupe racecar jeep suv hatchback vehicle roadster minivan traffic "
        "cabriolet",
        "truck tractor ambulance bus car|pickup trailer tanker bulldozer excavator digger crane dumper forklift camper caravan "
        "firetruck cart wagon carriage",
        "bus tram train|coach minibus trolley streetcar trolleybus schoolbus",
        "train tram bus|subway metro railway locomotive monorail engine rail",
        "bicycle motorcycle scooter skateboard|tricycle unicycle moped wheel rollerskate sled sledge sleigh segway wheelchair "
        "stroller pram ski",
        "airplane helicopter rocket parachute|plane glider drone biplane bomber zeppelin airship blimp propeller flight",
        "rocket ufo satellite airplane|shuttle spaceship missile probe",
        "boat ship canoe|raft kayak gondola submarine dinghy galleon battleship vessel tugboat catamaran ark hovercraft",
        "ambulance hospital truck|siren",
        "tractor truck car|harvester plough tank plow mower",
        "police car|squad",
    ),
    "sky and land": (
        "sun moon star|sunshine sunlight summer daylight heat sunbeam day",
        "moon star planet earth|crescent eclipse lunar mars venus jupiter mercury neptune uranus pluto asteroid meteor orbit world",
        "star sun moon|starfish constellation sparkle comet",
        "cloud rainbow lightning|rain fog mist storm thunderstorm thunder hurricane tornado smoke weather steam blizzard drizzle hail",
        "snowflake snow snowman cloud|ice frost icicle winter avalanche snowball iceberg",
        "fire sun candle volcano|torch explosion spark lava fireplace heater ember ash fireworks firework",
        "drop wave cloud|water rain raindrop tear splash bubble puddle dew",
        "mountain volcano island rock|hill cliff valley canyon ridge glacier cave everest slope range plateau",
        "volcano mountain fire|crater geyser eruption",
        "island palm beach|oasis lagoon paradise",
        "wave sea beach|lake river ocean pond stream waterfall tide tsunami creek swamp brook harbor port bay pool",
        "meadow field grass|park farm land farmland countryside landscape ground garden yard lawn",
        "rock mountain diamond|stone pebble boulder brick marble granite",
        "night sky moon star|evening darkness",
        "rainbow cloud sun|spectrum",
        "earth planet moon|continent map world country",
    ),
    "plants": (
        "tree pine palm leaf|forest wood woods jungle bush shrub hedge trunk branch log stump willow poplar cedar bonsai bamboo "
        "orchard plantation",
        "flower rose sunflower|daisy lily orchid dandelion daffodil poppy carnation bouquet petal hibiscus peony iris lotus marigold "
        "crocus snowdrop magnolia bloom",
        "leaf clover tree flower plant|fern ivy moss herb vine seedling sprout seed weed shamrock mint basil foliage autumn",
        "cactus palm plant|succulent aloe agave",
        "pumpkin sunflower carrot|gourd halloween",
        "corn sunflower leaf|wheat barley oats rye grain hay straw",
    ),
    "buildings": (
        "house castle hut tent church|cabin mansion villa barn shed apartment building shelter farmhouse igloo skyscraper hotel inn "
        "lodge roof attic garage warehouse village town city street room office treehouse dollhouse chalet",
        "castle tower church house|ruin temple mosque synagogue pyramid pagoda keep turret gate wall monastery kingdom dungeon",
        "school house hospital church|university college kindergarten library museum classroom academy theater theatre bank shop "
        "store supermarket restaurant cafe market bakery station airport prison jail stadium",
        "hospital school house|clinic pharmacy surgery",
        "tower castle factory|lighthouse windmill mill chimney antenna mast monument obelisk statue pillar column",
        "tent hut house|tipi teepee yurt camp circus marquee",
        "fountain drop|waterworks",
        "ferris wheel|carousel rollercoaster fairground carnival playground slide swing",
        "house ladder door|bridge road fence path pier dam tunnel stairs staircase steps balcony arch railing",
    ),
    "people": (
        "man woman boy girl|person human people adult dad father daddy husband uncle grandfather grandpa granddad actor soldier "
        "doctor farmer teacher chef cook driver worker builder sailor pilot fisherman hunter engineer scientist lawyer judge priest "
        "monk businessman waiter butcher baker plumber carpenter postman mailman fireman firefighter guard boss neighbor player "
        "runner dancer singer musician artist painter writer student friend viking pirate knight cowboy samurai warrior archer thief "
        "burglar spy hero detective president astronaut",
        "woman girl queen man|mom mum mother mommy mummy wife aunt grandmother grandma granny nurse actress bride ballerina waitress "
        "maid nun stewardess",
        "boy girl baby man|child children kid kids son teenager brother pupil toddler teen schoolboy youth",
        "girl boy woman|daughter sister schoolgirl",
        "baby boy girl|",
        "king queen crown man|emperor royal prince duke lord nobleman pharaoh sultan",
        "queen king crown woman|empress princess duchess fairy mermaid cinderella",
        "wizard queen ghost|witch elf dwarf gnome genie magic druid warlock merlin",
        "clown smiley|comedian joker",
        "smiley sad face angry face|face grin laugh emoticon head mouth expression happiness joy",
        "sad face|tears crying sorrow sadness grief",
        "angry face|anger rage fury",
        "santa snowman gift|christmas elf reindeer xmas",
        "policeman man|sheriff cops guard police",
        "mermaid queen fish|siren nymph",
        "ninja man|samurai assassin",
    ),
    "figures": (
        "ghost skull alien pumpkin|zombie vampire monster demon devil werewolf halloween goblin ogre troll skeleton",
        "alien ufo robot|astronaut cyborg predator",
        "robot alien|machine cyborg computer automaton",
        "snowman santa|yeti",
        "skull ghost bone|skeleton death pirate grave tomb coffin reaper",
        "teddy bear robot|doll toy puppet toys barbie plush",
        "angel ghost baby|cupid god",
        "heart smiley|love kiss lover valentine",
    ),
    "clothes": (
        "hat cap crown|helmet beret bonnet sombrero beanie hood turban fez wig",
        "shirt dress jacket|sweater pullover jumper vest uniform suit tuxedo cardigan polo jersey clothes clothing costume pajamas "
        "apron robe cape",
        "dress shirt jeans|skirt kimono sari bikini swimsuit leggings tutu",
        "jeans shirt|shorts tights slacks overalls",
        "shoe boot sock|sandal slipper heel heels footwear clog skate flipper",
        "jacket shirt dress|raincoat blazer cloak poncho anorak",
        "backpack box|bag handbag purse suitcase briefcase luggage wallet sack pouch satchel trunk",
        "umbrella hat|awning sunshade",
        "glasses eye|sunglasses goggles monocle binoculars lens",
        "ring crown diamond|necklace bracelet earring jewelry jewellery pearl brooch pendant treasure",
        "scarf tie sock glove|mitten shawl handkerchief belt ribbon bow bowtie",
    ),
    "things": (
        "chair sofa bed|stool bench armchair throne furniture seat rocker hammock recliner desk table cupboard wardrobe cabinet shelf "
        "drawer dresser bookshelf bookcase carpet rug pillow cushion blanket mattress curtain cradle crib",
        "bulb candle lantern|light torchlight flashlight chandelier headlight streetlight spotlight torch",
        "candle fire bulb lantern|match lighter wax incense",
        "door window key house|gate doorway entrance exit portal knob",
        "window door house|pane shutter blind",
        "key lock door|keyhole padlock password",
        "box gift basket backpack|chest container case barrel bin cardboard trunk tray",
        "bucket basket coffee|pot pan bowl jar vase jug pitcher tin kettle cauldron tub",
        "teapot coffee|kettle teacup",
        "book letter pencil|page newspaper magazine diary comic paper notepad calendar scroll bible note journal",
        "pencil book|pen crayon brush paintbrush marker chalk eraser ruler ink quill",
        "letter book|postcard stamp mailbox card message",
        "clock phone bell|watch stopwatch timer hourglass wristwatch time pendulum",
        "bell clock|gong doorbell chime",
        "laptop television phone camera|keyboard monitor screen printer tablet console joystick gamepad radio calculator projector",
        "television laptop|cinema movie film video",
        "camera phone television|photo picture photograph camcorder videocamera portrait",
        "phone laptop camera|walkie receiver pager",
        "hammer axe scissors saw|tool wrench screwdriver pliers drill nail screw mallet chisel shovel spade rake hoe toolbox",
        "axe sword hammer|pickaxe chainsaw cleaver machete scythe sickle",
        "sword shield axe|dagger spear lance knife bow arrow crossbow weapon armor armour katana trident",
        "shield sword|armory crest emblem badge",
        "bomb fire rocket|gun pistol rifle cannon dynamite grenade bullet mine tnt explosive",
        "scissors knife|razor shears clippers comb hairbrush",
        "knife spoon sword scissors|fork cutlery ladle chopsticks spatula plate dish",
        "diamond crown ring|crystal sapphire topaz amethyst opal coin money dollar cash treasure",
        "trophy medal crown|award prize winner victory champion chalice",
        "flag kite|pennant country nation sail",
        "balloon gift cake|party birthday confetti celebration",
        "gift balloon box|surprise ribbon wrapping",
        "heart star|broken soul organ",
        "hand eye|finger thumb fist palm arm leg foot feet toe knee elbow shoulder ear nose mouth tongue lip lips skin hair body "
        "brain",
        "eye glasses|eyes eyeball eyebrow eyelash pupil vision",
        "tooth bone skull|teeth fang tusk horn antler rib spine",
        "anchor ship boat|rudder rope chain hook",
        "magnet key|battery plug socket wire cable engine motor fan",
        "gear hammer|cog machine wheel cogwheel",
        "telescope microscope camera|binocular magnifier",
        "ladder house|stair scaffold",
        "bathtub toilet bed|bath shower sink basin faucet tap soap sponge toothbrush towel",
        "broom bucket|mop vacuum brush dustpan",
        "mirror window|reflection frame painting",
        "palette pencil|paint canvas easel art",
        "puzzle dice|lego blocks jigsaw toy cube",
        "pencil hammer|stick staff wand cane pole",
    ),
    "music": (
        "guitar violin piano drum trumpet|banjo ukulele lute harp cello bass mandolin instrument music band sitar orchestra song "
        "concert",
        "trumpet saxophone violin|trombone tuba horn flute clarinet oboe recorder harmonica whistle bagpipes",
        "piano guitar|organ accordion synthesizer xylophone",
        "drum guitar|tambourine cymbal bongo maracas percussion",
        "microphone headphones trumpet|speaker megaphone loudspeaker",
        "violin guitar|viola",
    ),
    "sport": (
        "football basketball baseball volleyball tennis|ball rugby hockey handball golf cricket goal sport game bowling billiards "
        "softball",
        "baseball football tennis|bat racket racquet glove badminton",
        "kite balloon airplane|frisbee boomerang yoyo paraglider",
        "dice puzzle|chess domino cards poker game checkers casino",
        "target dice|dart dartboard archery",
        "skateboard bicycle|surfboard snowboard rollerblades skater",
    ),
}  # fmt: skip

# Common words that are not things: they are never taken for a misspelt noun.
OTHER = (
    "about across after again against all alone along also always am among another any are around as ask asleep at awake away "
    "back bad be beautiful because been before behind being best better between bit blow bold boring both bottom brave bright "
    "bring broad but calm came can care carry center centre charming cheap chubby clean clear clever close cold colorful "
    "colourful come cool corner could crazy crowded cry curly cute dance dancing dark dead deep different dirty do does double "
    "down dozen draw drawing drawn dressed drinking drive driving dry eat eating eight eleven empty even ever every fall falling "
    "famous far fast fat few fierce fight fine first five flat fluffy flying for four fresh friendly from front full funny furry "
    "get give glow glowing go going good great had half hand hang happy hard has have having he heavy hello her here high him his "
    "hold holding hot how huge hundred hungry i if image in inside into is it its jump jumping just kind large last late laughing "
    "leave left let like little long look looking lot lots loud lovely low made make many maybe me mean middle million more most "
    "move much my near new next nice nine no not now of off old on only open or orange other our out outside over pale plain play "
    "playing please pretty pull push put quick quiet quite rainy reading ready real rich ride riding right round run running sad "
    "same scary second see seven shape sharp shiny short shy side sing singing sit sitting six sleeping sleepy slow small smart "
    "smiling snowy so soft some sore standing still strong style such sunny super sure sweet swim swimming take tall ten than "
    "that the their them then there these they thin thing third this those thousand through tired to together too top toward "
    "towards twelve two ugly under up upon us use very walk walking warm was watching we wear wearing weird well wet what when "
    "where which while who wide wild will wise wish with without wonderful wooden would you young your zero"
)
