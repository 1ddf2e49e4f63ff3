# To be sourced in fuzz/: what a target begins with.

# corpus TARGET: fuzz/corpus/TARGET, with what fuzz/seeds keeps of it.
corpus() {
    mkdir -p "corpus/$1"
    [[ ! -f seeds/$1.tar.xz ]] || tar -xJf "seeds/$1.tar.xz" -C "corpus/$1" --skip-old-files
}
export -f corpus
