"""Word lists shared by the story and the dialogue grammar, and the weighted choice that both use.

Everything here was written for this project. The lists hold facts (a lemon is yellow) and plain words.
"""

import random
from functools import lru_cache

# Animals that stories are mostly about: noun -> (where it lives, what it likes to eat, what it says, a thing it can do).
ANIMALS = {
    "fox": ("in the forest", "berries", "yip", "run"),
    "rabbit": ("in a burrow", "carrots", "squeak", "hop"),
    "bear": ("in a cave", "honey", "growl", "climb"),
    "owl": ("in a hollow tree", "mice", "hoot", "fly"),
    "mouse": ("in a tiny hole", "cheese", "squeak", "run"),
    "cat": ("in a house", "fish", "meow", "climb"),
    "dog": ("in a house", "bones", "woof", "run"),
    "duck": ("by a pond", "bread and seeds", "quack", "swim"),
    "frog": ("by a pond", "flies", "croak", "jump"),
    "turtle": ("by a pond", "leaves", "nothing at all", "swim"),
    "squirrel": ("in a tree", "nuts", "chatter", "climb"),
    "hedgehog": ("under a hedge", "worms", "snuffle", "roll into a ball"),
    "lion": ("in the grassland", "meat", "roar", "run"),
    "elephant": ("in the grassland", "leaves", "trumpet", "carry heavy logs"),
    "monkey": ("in the jungle", "bananas", "chatter", "climb"),
    "penguin": ("in the cold south", "fish", "honk", "swim"),
    "whale": ("in the sea", "tiny shrimp", "sing", "swim"),
    "fish": ("in the water", "small plants", "nothing at all", "swim"),
    "horse": ("in a stable", "hay", "neigh", "gallop"),
    "cow": ("on a farm", "grass", "moo", "walk"),
    "pig": ("on a farm", "corn", "oink", "dig"),
    "sheep": ("on a farm", "grass", "baa", "walk"),
    "goat": ("in the mountains", "grass", "bleat", "climb"),
    "hen": ("on a farm", "seeds", "cluck", "flap"),
    "bee": ("in a hive", "nectar", "buzz", "fly"),
    "butterfly": ("in a garden", "nectar", "nothing at all", "fly"),
    "snail": ("in a garden", "leaves", "nothing at all", "crawl"),
    "bird": ("in a nest", "seeds", "tweet", "fly"),
    "wolf": ("in the forest", "meat", "howl", "run"),
    "deer": ("in the forest", "grass", "bleat", "run"),
    "tiger": ("in the jungle", "meat", "roar", "run"),
    "ant": ("in an anthill", "crumbs", "nothing at all", "carry leaves"),
    "spider": ("in a web", "flies", "nothing at all", "climb"),
    "donkey": ("on a farm", "hay", "bray", "carry bags"),
    "panda": ("in the mountains", "bamboo", "bleat", "climb"),
    "giraffe": ("in the grassland", "leaves", "hum", "reach high leaves"),
}
LEGS = {"bird": 2, "duck": 2, "hen": 2, "owl": 2, "penguin": 2, "bee": 6, "butterfly": 6, "ant": 6, "spider": 8,
        "fish": 0, "whale": 0, "snail": 0}

# Rarer heroes: they teach the model to keep the word of the prompt, whatever it is.
RARE_HEROES = """dragon robot snowman kite cloud star tree king queen princess prince wizard witch giant pirate sailor farmer baker
teacher painter gardener mole badger beaver otter seal dolphin shark crab octopus starfish jellyfish parrot crow swan goose
eagle pigeon sparrow robin crane stork peacock turkey camel zebra hippo rhino kangaroo koala sloth lizard snake crocodile
dinosaur unicorn fairy elf mermaid knight train boat teapot lamp clock pumpkin leaf raindrop snowflake button spoon sock
kitten puppy lamb pony calf chick duckling tadpole caterpillar beetle ladybug cricket moth firefly bat rat hamster
raccoon skunk moose llama yak ox buffalo leopard cheetah balloon pebble mushroom flower acorn toy doll car bus tractor
violin drum piano book pencil""".split()

# Words that appear as heroes too seldom to be learnt one by one: with them and with invented nouns the model learns to copy the word.
OTHER_HEROES = """toaster platypus apple banana potato carrot onion tomato lemon cherry cookie cake pie bread sandwich pizza bottle cup plate fork
knife pan kettle chair table bed door window mirror candle carpet pillow blanket basket bag box ring coin hat shirt coat glove boot belt ribbon
ghost monster troll goblin vampire zombie mummy alien astronaut detective doctor nurse cook soldier hunter fisherman postman policeman fireman
clown juggler singer dancer musician writer poet lawyer judge engineer scientist programmer computer phone radio camera television laptop printer
bicycle truck ship submarine plane helicopter rocket spaceship planet comet meteor sun mountain river lake island desert volcano iceberg bridge
castle tower house barn windmill lighthouse library school garden forest flute guitar trumpet bell whistle key lock ladder hammer saw nail rope
wheel stone diamond crystal feather shell egg seed root branch rose tulip daisy cactus grass bamboo wind storm shadow dream song letter number
grandmother grandfather mother father sister brother baby uncle aunt cousin neighbour stranger beggar merchant emperor duke bishop monk
walrus ferret weasel lynx puma jaguar hyena gorilla chimpanzee lemur porcupine armadillo anteater tapir gazelle antelope bison reindeer
ostrich emu pelican flamingo toucan woodpecker cuckoo magpie raven hawk falcon vulture nightingale hummingbird salmon trout tuna squid
lobster shrimp clam worm leech wasp hornet dragonfly grasshopper ladybird mosquito flea""".split()

GIRLS = """Mia Lily Emma Nora Ella Ruby Anna Rosie Zoe Clara Daisy Molly Lucy Ivy Bella Hana Maya Lena Sofia Poppy Luna Willow
Tilly Nina Kira Alice Grace Eva Penny Mei""".split()
BOYS = """Tom Ben Max Sam Leo Oscar Finn Jack Noah Theo Hugo Milo Toby Felix Otto Pip Benny Rusty Jasper Oliver Kai Ravi Omar
Nico Emil Charlie Archie Barney Bruno Teddy""".split()

ADJECTIVES = "little small brave kind clever shy curious happy gentle sleepy young tiny lonely cheerful quiet funny".split()
COLOURS = "red blue green yellow orange purple pink white golden silver brown black".split()

PLACES = ["in a green forest", "by a blue lake", "near a small village", "at the edge of the woods", "on a sunny hill",
          "in a quiet valley", "by the sea", "on a little farm", "in an old garden", "beside a clear river", "under a tall oak tree",
          "in a cosy house", "near a high mountain", "on a small island", "in a busy town"]
THINGS = ["ball", "hat", "kite", "shell", "bell", "book", "key", "blanket", "scarf", "lantern", "drum", "basket", "boat", "button",
          "ring", "cup", "toy", "coin", "flute", "map", "umbrella", "stone", "ribbon", "spoon"]
FOODS = ["apples", "berries", "bread", "soup", "honey", "cake", "pancakes", "nuts", "carrots", "pie", "cookies", "cherries", "pears",
         "plums", "porridge", "jam"]
LOVES = ["sing songs", "look at the stars", "play in the sun", "run through the grass", "listen to the rain", "count the clouds",
         "dance in the wind", "pick flowers", "hear stories", "climb trees", "splash in puddles", "help others", "ask questions",
         "collect shiny stones", "draw pictures", "watch the birds"]
SKILLS = {"swim": "the water", "fly": "the sky", "sing": "a song", "dance": "the music", "climb": "the tall tree", "whistle": "a tune",
          "skate": "the ice", "read": "a book", "bake": "a cake", "paint": "a picture"}

COLOUR_OF = {
    "the sky": "blue", "the sea": "blue", "grass": "green", "a leaf": "green", "the sun": "yellow", "a lemon": "yellow",
    "a banana": "yellow", "snow": "white", "milk": "white", "a cloud": "white", "a strawberry": "red", "a tomato": "red",
    "a cherry": "red", "a fire truck": "red", "an orange": "orange", "a carrot": "orange", "a pumpkin": "orange",
    "a grape": "purple", "a plum": "purple", "a pig": "pink", "a flamingo": "pink", "chocolate": "brown", "a bear": "brown",
    "wood": "brown", "coal": "black", "the night": "black", "a crow": "black", "a mouse": "grey", "an elephant": "grey",
    "a rock": "grey", "a frog": "green", "a pea": "green", "a cucumber": "green", "a fox": "orange", "a swan": "white",
    "a sunflower": "yellow", "blood": "red", "a rose": "red", "a polar bear": "white", "an eggplant": "purple",
    "a penguin": "black and white", "a zebra": "black and white", "a panda": "black and white", "a blueberry": "blue",
    "gold": "yellow", "salt": "white", "a lion": "yellow", "a crocodile": "green", "a ladybug": "red", "a chick": "yellow",
}
OPPOSITES = [("hot", "cold"), ("big", "small"), ("fast", "slow"), ("happy", "sad"), ("up", "down"), ("day", "night"), ("old", "young"),
             ("wet", "dry"), ("hard", "soft"), ("light", "dark"), ("high", "low"), ("full", "empty"), ("open", "closed"),
             ("loud", "quiet"), ("long", "short"), ("early", "late"), ("good", "bad"), ("left", "right"), ("near", "far"),
             ("strong", "weak"), ("rich", "poor"), ("clean", "dirty"), ("in", "out"), ("yes", "no"), ("first", "last")]
SIZES = ["an ant", "a bee", "a mouse", "a bird", "a rabbit", "a cat", "a dog", "a sheep", "a pig", "a lion", "a horse", "an elephant",
         "a whale"]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
SEASONS = {"spring": "flowers begin to bloom", "summer": "the days are long and warm", "autumn": "the leaves turn red and gold",
           "winter": "it is cold and snow may fall"}
CAPITALS = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "England": "London", "Japan": "Tokyo",
            "China": "Beijing", "Russia": "Moscow", "Egypt": "Cairo", "Greece": "Athens", "Portugal": "Lisbon", "Austria": "Vienna"}
OTHER_LANDS = """Poland Sweden Norway India Canada Ireland Brazil Australia Mexico Argentina Turkey Denmark Finland Belgium Switzerland Hungary
Kenya Peru Cuba Chile Morocco Nigeria Iran Iraq Israel Vietnam Thailand Iceland Scotland Wales Romania Ukraine Korea""".split()
NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
RHYMES = [("cat", "hat"), ("dog", "log"), ("moon", "spoon"), ("star", "car"), ("tree", "bee"), ("fox", "box"), ("mouse", "house"),
          ("bear", "chair"), ("light", "night"), ("rain", "train"), ("day", "play"), ("sea", "key"), ("boat", "goat"),
          ("king", "ring"), ("fish", "dish"), ("snow", "glow"), ("cake", "lake"), ("red", "bed"), ("blue", "shoe")]

SYLLABLES = """ba be bi bo da de di do fa fi ga go ha ho ja jo ka ke ki ko la le li lo lu ma me mi mo na ne ni no pa pi ra re ri ro ru
sa se si so ta te ti to va vi wa we ya za ze zo""".split()
CODAS = ["", "", "", "n", "r", "l", "s", "x", "th", "m", "k", "t"]


def an(noun: str) -> str:
    """The noun phrase with its indefinite article. "unicorn" starts with a consonant sound."""
    return f"an {noun}" if noun[0] in "aeiou" and not noun.startswith("uni") else f"a {noun}"


def cap(text: str) -> str:
    return text[:1].upper() + text[1:]


TEMPERAMENTS = 8


def temperament(noun: str) -> str:
    """The key under which a hero's preferences are drawn. A small network can learn eight sets of them, not one a word."""
    for heroes in (list(ANIMALS), RARE_HEROES):
        if noun in heroes:
            return f"temperament {heroes.index(noun) % TEMPERAMENTS}"
    return noun if noun in ("boy", "girl") else "other"


@lru_cache(maxsize=None)
def _order(key: str, count: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    order = list(range(count))
    random.Random(key).shuffle(order)
    return tuple(order), tuple((rank + 1) ** -1.6 for rank in range(count))


class Chooser:
    """A seeded chooser whose preferences depend on `key`, typically the temperament of the story's hero.

    Uniform choices would leave a trained model with ties, and ties make greedy replies fragile. Here each slot ranks its options in
    an order fixed by (key, slot) and draws rank r with weight r^-1.6, so every hero has a favourite way of going on, and heroes differ.
    """

    def __init__(self, rng: random.Random, key: str):
        self.rng = rng
        self.key = key

    def pick(self, slot: str, options):
        options = list(options)
        order, weights = _order(f"{self.key}/{slot}", len(options))
        return options[self.rng.choices(order, weights)[0]]

    def even(self, options):
        """A uniform choice, for what the prompt decides."""
        return self.rng.choice(list(options))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


def invented_noun(rng: random.Random) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((2, 2, 3)))) + rng.choice(CODAS)


def invented_name(rng: random.Random) -> str:
    """A name nobody has, so that the model learns to copy names instead of recalling them."""
    return cap("".join(rng.choice(SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3)))) + rng.choice(CODAS))
