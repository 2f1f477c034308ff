sizes_of() {
    if [ "$1" = "7B" ]; then
        LAYERS=32; HIDDEN=4096; HEADS=32; WIDE=11008
    elif [[ $1 == 13* ]]; then
        LAYERS=40; HIDDEN=5120; HEADS=40; WIDE=13824
    else
        echo "unknown size $1"; exit 1
    fi
}
